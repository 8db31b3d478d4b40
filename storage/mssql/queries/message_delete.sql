-- Removes live messages that were copied to where finished ones are, in the same transaction,
-- which has the locks of the rows. Leans on the primary key; the loop over the list never scans.
DELETE m
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id;
SELECT @@ROWCOUNT AS changed;
