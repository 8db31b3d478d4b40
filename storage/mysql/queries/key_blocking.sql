-- Those of the keys, each with the position of its dead head, of which the queue blocks a key
-- behind such a one (O7). Leans on the primary keys.
SELECT j.key_id, j.position
FROM JSON_TABLE(:list, '$[*]' COLUMNS (key_id BIGINT PATH '$[0]', position BIGINT PATH '$[1]')) AS j
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (PRIMARY) ON k.key_id = j.key_id
STRAIGHT_JOIN queue AS q FORCE INDEX (PRIMARY) ON q.queue_id = k.queue_id
WHERE q.ordering_mode = 2
