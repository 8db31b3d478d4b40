-- Which of the listed messages are live, locked or not: the mark of one that somebody else has
-- locked stays for the next time. Leans on the primary key.
SELECT m.id
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
