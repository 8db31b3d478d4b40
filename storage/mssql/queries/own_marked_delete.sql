-- Removes marks that the transaction has taken and finished. Leans on the primary key.
DELETE FROM queuebox.marked WITH (ROWLOCK)
WHERE seq IN (SELECT j.seq FROM OPENJSON(@list) WITH (seq bigint '$[0]') AS j);
SELECT @@ROWCOUNT AS changed;
