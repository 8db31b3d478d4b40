-- Takes those of the listed marks that no other server is at; their locks are held until the
-- transaction ends. Leans on the primary key.
SELECT k.seq
FROM OPENJSON(@list) WITH (seq bigint '$[0]') AS j
INNER LOOP JOIN queuebox.marked AS k WITH (UPDLOCK, READPAST, ROWLOCK) ON k.seq = j.seq
OPTION (FORCE ORDER)
