-- Locks the idempotency keys that name the dead and cancelled messages, those that nobody else has; the
-- transaction has the messages. Leans on the primary keys.
SELECT m.id
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.dead AS m WITH (ROWLOCK) ON m.id = j.id
INNER LOOP JOIN queuebox.idempotency_key AS k WITH (UPDLOCK, READPAST, ROWLOCK) ON k.queue_id = m.queue_id AND k.name = m.idempotency_key
WHERE m.idempotency_key <> 0x AND k.position / 2 = m.id
OPTION (FORCE ORDER);
