-- Appends what the marks of messages say to the history (S5), but for completions, which are
-- their own. The transaction has the locks of the rows. Leans on the primary key.
INSERT INTO settlement (id, token, queue_id, settle_time, available_time, action, outcome, dead_reason)
SELECT m.id, m.token, m.queue_id, m.settle_time, m.settle_time + INTERVAL m.mark_delay_us MICROSECOND, m.mark_action, m.outcome,
    COALESCE(m.mark_dead_reason, 0)
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.state = 3 AND m.outcome <> 1
