-- Which of those messages stand as the heads of their ordering keys. Leans on the primary key.
SELECT m.id, m.key_id FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.key_id IS NOT NULL AND m.place < 2
