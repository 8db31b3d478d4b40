-- Removes rows that the transaction has taken: they were placed, or are duplicates.
-- Leans on the primary key.
DELETE i FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN incoming AS i FORCE INDEX (PRIMARY) ON i.id = j.id
