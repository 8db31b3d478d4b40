-- Notes which dead message blocks each of the keys, whose locks the caller has: the later one,
-- where another does already. Leans on the primary key.
UPDATE k
SET blocked_by = j.position
FROM queuebox.ordering_key AS k WITH (ROWLOCK)
INNER JOIN OPENJSON(@list) WITH (key_id bigint '$[0]', position bigint '$[1]') AS j ON j.key_id = k.key_id
WHERE k.blocked_by IS NULL OR k.blocked_by < j.position;
SELECT @@ROWCOUNT AS changed;
