-- Of which messages another claim was settled (S8), as long as the history is kept.
-- Leans on the primary keys.
SELECT DISTINCT j.i
FROM JSON_TABLE(:list, '$[*]' COLUMNS (
    i INT PATH '$[0]', queue_id INT PATH '$[1]', id BIGINT PATH '$[2]', token CHAR(32) PATH '$[3]')) AS j
STRAIGHT_JOIN queue AS q FORCE INDEX (PRIMARY) ON q.queue_id = j.queue_id
STRAIGHT_JOIN settlement AS s FORCE INDEX (PRIMARY) ON s.id = j.id AND s.token <> UNHEX(j.token) AND s.queue_id = j.queue_id
WHERE s.settle_time + INTERVAL GREATEST(q.completed_retention_us, 600000000) MICROSECOND > {{now}}
