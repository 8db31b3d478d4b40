-- Removes ordering keys that nothing needs, whose locks the caller has. Leans on the primary key.
DELETE k
FROM JSON_TABLE(:list, '$[*]' COLUMNS (key_id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (PRIMARY) ON k.key_id = j.key_id
