-- Removes rows that the transaction has taken: they were placed, or are duplicates.
-- Leans on the primary key.
DELETE i FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.incoming AS i WITH (ROWLOCK) ON i.id = j.id
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
