-- Locks those of the listed idempotency keys that still name the listed messages and that
-- nobody else has. Leans on the primary key.
SELECT k.position
FROM OPENJSON(@list) WITH (queue_id int '$[0]', name varbinary(max) '$[1]', position bigint '$[2]') AS j
INNER LOOP JOIN queuebox.idempotency_key AS k WITH (UPDLOCK, READPAST, ROWLOCK) ON k.queue_id = j.queue_id AND k.name = CAST(j.name AS varbinary(255))
WHERE k.position = j.position
OPTION (FORCE ORDER)
