-- Notes which dead message blocks each of the keys, whose locks the caller has: the later one,
-- where another does already. Leans on the primary key; the loop over the list never scans.
UPDATE k
SET blocked_by = j.position
FROM OPENJSON(@list) WITH (key_id bigint '$[0]', position bigint '$[1]') AS j
INNER LOOP JOIN queuebox.ordering_key AS k WITH (ROWLOCK) ON k.key_id = j.key_id
WHERE k.blocked_by IS NULL OR k.blocked_by < j.position;
SELECT @@ROWCOUNT AS changed;
