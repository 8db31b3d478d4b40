-- Forgets what blocked keys, whose locks the caller has. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (key_id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (PRIMARY) ON k.key_id = j.key_id
SET k.blocked_by = NULL
