-- Takes those of the listed marks that no other server is at; their locks are held until the
-- transaction ends. Leans on the primary key.
SELECT k.seq
FROM JSON_TABLE(:list, '$[*]' COLUMNS (seq BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN marked AS k FORCE INDEX (PRIMARY) ON k.seq = j.seq
FOR UPDATE /*!80000 OF k */ SKIP LOCKED
