-- The ordering keys of live messages. Takes no lock: a message never changes its key, and
-- whether it is still live is judged when the key is locked. Leans on the primary keys.
SELECT m.id, k.key_id, k.queue_id, k.name
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', id BIGINT PATH '$[1]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (PRIMARY) ON k.key_id = m.key_id
