-- Takes heads back behind others of their keys. It comes before key_promote, since a key has
-- one head at a time. The caller has the locks of the rows. Leans on the primary key; the loop
-- over the list never scans.
UPDATE m
SET place = 2
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id;
SELECT @@ROWCOUNT AS changed;
