-- Frees the idempotency keys of the dead and cancelled messages (E5). The transaction has locked both.
-- Leans on the primary keys.
DELETE k
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.dead AS m WITH (ROWLOCK) ON m.id = j.id
INNER LOOP JOIN queuebox.idempotency_key AS k WITH (ROWLOCK) ON k.queue_id = m.queue_id AND k.name = m.idempotency_key
WHERE m.idempotency_key <> 0x AND k.position / 2 = m.id
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
