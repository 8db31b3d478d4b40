-- Deletes completed messages that the transaction has locked. Leans on the primary key.
DELETE m
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN completed AS m FORCE INDEX (PRIMARY) ON m.id = j.id
