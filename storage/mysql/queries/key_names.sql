-- Queue and name of ordering keys, which are the order of their locks. Takes no lock.
-- Leans on the primary key.
SELECT k.key_id, k.queue_id, k.name
FROM JSON_TABLE(:list, '$[*]' COLUMNS (key_id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (PRIMARY) ON k.key_id = j.key_id
