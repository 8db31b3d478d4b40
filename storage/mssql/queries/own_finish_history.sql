-- Appends what the marks of messages say to the history (S5), but for completions, which are
-- their own. The transaction has the locks of the rows. Leans on the primary key.
INSERT INTO queuebox.settlement (id, token, queue_id, settle_time, available_time, action, outcome, dead_reason)
SELECT m.id, m.token, m.queue_id, m.settle_time,
    DATEADD(microsecond, CAST(m.mark_delay_us % 1000000 AS int), DATEADD(second, CAST(m.mark_delay_us / 1000000 AS int), m.settle_time)),
    m.mark_action, m.outcome, COALESCE(m.mark_dead_reason, 0)
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m ON m.id = j.id
WHERE m.state = 3 AND m.outcome <> 1
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
