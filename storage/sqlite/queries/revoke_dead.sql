-- Copies a message whose claim was taken away to the dead ones, in the state ?3, for the reason
-- ?4, the attempt refunded where ?5 is set. The action 5 says that its token is lost, not settled.
-- The caller removes the live row in the same transaction. Leans on the primary key.
INSERT INTO dead (position, queue_id, state, finish_time, token, action, dead_reason, attempt, max_attempts, priority, ready_time,
                  create_time, expire_time, worker_id, last_error, reason_code, content_type, idempotency_key,
                  ordering_key, wire_bytes, attributes, payload_bytes, payload)
SELECT position, queue_id, ?3, CAST(round(unixepoch('subsec') * 1000) AS INTEGER), token, 5, ?4, attempt - iif(?5, 1, 0), max_attempts, priority, ready_time,
       create_time, expire_time, worker_id, last_error, reason_code, content_type, idempotency_key,
       coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = key_id), ''), wire_bytes, attributes, payload_bytes, payload
FROM message
WHERE position = ?2 AND queue_id = ?1
RETURNING finish_time
