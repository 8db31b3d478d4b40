-- Removes marks that the transaction has taken and finished. Leans on the primary key.
DELETE k FROM JSON_TABLE(:list, '$[*]' COLUMNS (seq BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN marked AS k FORCE INDEX (PRIMARY) ON k.seq = j.seq
