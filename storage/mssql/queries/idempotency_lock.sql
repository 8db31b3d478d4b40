-- Locks those of the listed idempotency keys that are there, in the order of the list, which is
-- that of all who lock several. A key that an open transaction is taking is waited for (E6); of
-- one that is not there nothing is locked, so nobody waits who takes its neighbour.
-- Leans on the primary key.
SELECT k.queue_id, k.name, k.position, k.content_hash
FROM OPENJSON(@list) WITH (queue_id int '$[0]', name varbinary(max) '$[1]') AS j
INNER LOOP JOIN queuebox.idempotency_key AS k WITH (UPDLOCK, ROWLOCK, FORCESEEK)
    ON k.queue_id = j.queue_id AND k.name = CAST(j.name AS varbinary(255))
OPTION (FORCE ORDER, MAXDOP 1)
