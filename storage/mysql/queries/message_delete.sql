-- Removes live messages that were copied to where finished ones are, in the same transaction,
-- which has the locks of the rows. Leans on the primary key.
DELETE m
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
