-- Which of those messages stand as the heads of their ordering keys. Leans on the primary key.
SELECT m.id, m.key_id FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m ON m.id = j.id
WHERE m.key_id IS NOT NULL AND m.place < 2
OPTION (FORCE ORDER)
