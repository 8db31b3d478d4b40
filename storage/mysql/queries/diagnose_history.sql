-- What tokens did to their messages, as long as the history is kept (S5, S6).
-- Leans on the primary keys.
SELECT j.i, s.action, s.outcome, s.dead_reason, s.settle_time, s.available_time
FROM JSON_TABLE(:list, '$[*]' COLUMNS (
    i INT PATH '$[0]', queue_id INT PATH '$[1]', id BIGINT PATH '$[2]', token CHAR(32) PATH '$[3]')) AS j
STRAIGHT_JOIN settlement AS s FORCE INDEX (PRIMARY) ON s.id = j.id AND s.token = UNHEX(j.token) AND s.queue_id = j.queue_id
STRAIGHT_JOIN queue AS q FORCE INDEX (PRIMARY) ON q.queue_id = s.queue_id
WHERE s.settle_time + INTERVAL GREATEST(q.completed_retention_us, 600000000) MICROSECOND > {{now}}
