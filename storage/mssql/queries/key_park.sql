-- Takes heads back behind others of their keys. It comes before key_promote, since a key has
-- one head at a time. The caller has the locks of the rows. Leans on the primary key.
UPDATE queuebox.message WITH (ROWLOCK)
SET place = 2
WHERE id IN (SELECT j.id FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j);
SELECT @@ROWCOUNT AS changed;
