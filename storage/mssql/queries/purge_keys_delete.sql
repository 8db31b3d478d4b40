-- Removes idempotency keys that the transaction has locked. Leans on the primary key.
DELETE k FROM OPENJSON(@list) WITH (queue_id int '$[0]', name varbinary(max) '$[1]', position bigint '$[2]') AS j
INNER LOOP JOIN queuebox.idempotency_key AS k WITH (ROWLOCK) ON k.queue_id = j.queue_id AND k.name = CAST(j.name AS varbinary(255))
WHERE k.position = j.position
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
