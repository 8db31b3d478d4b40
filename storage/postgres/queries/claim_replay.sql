-- Reads the claims of a call that are still held, same tokens, nothing extended (C14). It
-- runs after claim_replayed in the same transaction. Leans on claim_call_pkey, message_pkey.
SELECT m.token, m.position, m.idempotency_key, m.payload, m.payload_bytes, m.content_type, m.attributes,
    m.priority, m.attempt, m.max_attempts, m.create_time, m.ready_time, m.expire_time, m.last_error,
    m.reason_code, m.worker_id, m.lease_end,
    (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = m.key_id)
FROM queuebox.claim_call c
CROSS JOIN LATERAL unnest(c.positions, c.tokens) WITH ORDINALITY AS held (position, token, ord)
JOIN queuebox.message m ON m.queue_id = c.queue_id AND m.position = held.position
    AND CASE WHEN m.token = held.token THEN m.state = 1 AND m.lease_end > clock_timestamp() ELSE false END
WHERE c.queue_id = $1 AND c.claim_id = $2
ORDER BY held.ord
