-- What committed transactions of others have enqueued (E12), in the order in which it is placed.
-- It locks nothing and waits for nobody. Walks the primary key from the given id on.
SELECT i.id, i.queue_id, i.ordering_key, i.idempotency_key <> '', i.wire_bytes
FROM incoming AS i FORCE INDEX (PRIMARY)
WHERE i.id >= :from AND i.refused IS NULL
ORDER BY i.id
LIMIT :look
