-- Removes marks that the transaction has taken and finished. Leans on the primary key.
DELETE k FROM OPENJSON(@list) WITH (seq bigint '$[0]') AS j
INNER LOOP JOIN queuebox.marked AS k WITH (ROWLOCK) ON k.seq = j.seq
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
