-- Those of the named messages that are over: :now was read by an earlier statement.
-- Leans on the primary key; takes no lock.
SELECT m.id, m.queue_id, m.key_id, m.payload_bytes
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', queue_id INT PATH '$[1]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE {{over}}
