-- Locks ordering keys in the order of the list, which is by queue and name (D12); one that
-- somebody else has is waited for. A key that is not there any more is left out.
-- Leans on the primary key.
SELECT k.key_id
FROM JSON_TABLE(:list, '$[*]' COLUMNS (key_id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (PRIMARY) ON k.key_id = j.key_id
FOR UPDATE /*!80000 OF k */
