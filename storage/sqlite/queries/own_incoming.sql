-- What transactions of others enqueued, in the order of their commits (E12). Walks the primary key.
SELECT id, queue_id, create_time, delay, available_time, expire_time, priority, max_attempts, idempotency_key,
       ordering_key, wire_bytes, content_type, attributes, payload
FROM incoming
WHERE refused IS NULL
ORDER BY id
LIMIT ?1
