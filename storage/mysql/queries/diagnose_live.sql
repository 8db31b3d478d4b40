-- The claims of live messages, to say why a fence did not hold. The rows are as they were
-- committed last, so none counts as locked: one that somebody is changing shows the claim that
-- it had. Leans on the primary key.
SELECT j.i, m.key_id, 0, m.state, m.token <=> UNHEX(j.token), m.attempt,
    m.outcome, m.mark_action, m.mark_dead_reason, m.settle_time, m.mark_delay_us
FROM JSON_TABLE(:list, '$[*]' COLUMNS (
    i INT PATH '$[0]', queue_id INT PATH '$[1]', id BIGINT PATH '$[2]', token CHAR(32) PATH '$[3]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
