-- Forgets what blocked keys, whose locks the caller has. Leans on the primary key.
UPDATE queuebox.ordering_key WITH (ROWLOCK)
SET blocked_by = NULL
WHERE key_id IN (SELECT j.key_id FROM OPENJSON(@list) WITH (key_id bigint '$[0]') AS j);
SELECT @@ROWCOUNT AS changed;
