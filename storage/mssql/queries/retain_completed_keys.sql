-- Which of the completed messages an idempotency key names still (E5).
-- Leans on the primary keys; takes no lock.
SELECT m.id
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.completed AS m WITH (NOLOCK) ON m.id = j.id
INNER LOOP JOIN queuebox.idempotency_key AS k WITH (NOLOCK) ON k.queue_id = m.queue_id AND k.name = m.idempotency_key
WHERE m.idempotency_key <> 0x AND k.position / 2 = m.id
OPTION (FORCE ORDER);
