-- Notes which dead message blocks each of the keys, whose locks the caller has.
-- Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (key_id BIGINT PATH '$[0]', position BIGINT PATH '$[1]')) AS j
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (PRIMARY) ON k.key_id = j.key_id
SET k.blocked_by = GREATEST(COALESCE(k.blocked_by, 0), j.position)
