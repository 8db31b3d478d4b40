-- The ends of messages that are finished and kept: the state, whether this token was the last,
-- and what it did. Leans on the primary keys.
SELECT j.i, m.ordering_key <> '', 2, m.token = UNHEX(j.token), 1, 0, m.finish_time, m.follow_ups
FROM JSON_TABLE(:list, '$[*]' COLUMNS (
    i INT PATH '$[0]', queue_id INT PATH '$[1]', id BIGINT PATH '$[2]', token CHAR(32) PATH '$[3]')) AS j
STRAIGHT_JOIN completed AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
STRAIGHT_JOIN queue AS q FORCE INDEX (PRIMARY) ON q.queue_id = m.queue_id
WHERE {{kept_completed}}
UNION ALL
SELECT j.i, m.ordering_key <> '', m.state, m.token <=> UNHEX(j.token), m.action, m.dead_reason, m.finish_time, NULL
FROM JSON_TABLE(:list, '$[*]' COLUMNS (
    i INT PATH '$[0]', queue_id INT PATH '$[1]', id BIGINT PATH '$[2]', token CHAR(32) PATH '$[3]')) AS j
STRAIGHT_JOIN dead AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
STRAIGHT_JOIN queue AS q FORCE INDEX (PRIMARY) ON q.queue_id = m.queue_id
WHERE {{kept_dead}}
