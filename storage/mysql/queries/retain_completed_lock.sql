-- Locks the idempotency keys that name the completed messages, those that nobody else has; the
-- transaction has the messages. Leans on the primary keys.
SELECT m.id
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN completed AS m FORCE INDEX (PRIMARY) ON m.id = j.id
STRAIGHT_JOIN idempotency_key AS k FORCE INDEX (PRIMARY) ON k.queue_id = m.queue_id AND k.name = m.idempotency_key
WHERE m.idempotency_key <> '' AND k.position DIV 2 = m.id
FOR UPDATE /*!80000 OF m, k */ SKIP LOCKED
