-- Removes live messages that were copied to where finished ones are, in the same transaction,
-- which has the locks of the rows. Leans on the primary key.
DELETE FROM queuebox.message WITH (ROWLOCK)
WHERE id IN (SELECT j.id FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j);
SELECT @@ROWCOUNT AS changed;
