-- Locks those of the ordering keys that nobody has, as key_lock does.
-- Leans on the primary key.
SELECT k.key_id
FROM JSON_TABLE(:list, '$[*]' COLUMNS (key_id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (PRIMARY) ON k.key_id = j.key_id
FOR UPDATE /*!80000 OF k */ SKIP LOCKED
