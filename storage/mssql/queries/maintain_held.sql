-- Which of the claim calls have a message whose token is still theirs, leased or settling. Leans on
-- the primary key; takes no lock.
SELECT DISTINCT j.n
FROM OPENJSON(@list) WITH (n int '$[0]', id bigint '$[1]', token uniqueidentifier '$[2]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (NOLOCK) ON m.id = j.id
WHERE m.state IN (1, 3) AND m.token = j.token
OPTION (FORCE ORDER);
