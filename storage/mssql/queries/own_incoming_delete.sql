-- Removes rows that the transaction has taken: they were placed, or are duplicates.
-- Leans on the primary key.
DELETE FROM queuebox.incoming WITH (ROWLOCK)
WHERE id IN (SELECT j.id FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j);
SELECT @@ROWCOUNT AS changed;
