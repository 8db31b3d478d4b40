-- Deletes settlements that the transaction has locked. Leans on the primary key.
DELETE m
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', token CHAR(32) PATH '$[1]')) AS j
STRAIGHT_JOIN settlement AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.token = UNHEX(j.token)
