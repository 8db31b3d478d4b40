-- Deletes settlements that the transaction has locked. Leans on the primary key.
DELETE m
FROM OPENJSON(@list) WITH (id bigint '$[0]', token uniqueidentifier '$[1]') AS j
INNER LOOP JOIN queuebox.settlement AS m WITH (ROWLOCK) ON m.id = j.id AND m.token = j.token
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
