-- Which of the listed messages are live, locked or not: the mark of one that somebody else has
-- locked stays for the next time. Leans on the primary key.
SELECT m.id
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (NOLOCK) ON m.id = j.id
OPTION (FORCE ORDER)
