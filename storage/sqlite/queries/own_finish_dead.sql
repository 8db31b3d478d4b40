-- Copies a marked message to the dead ones, dead or cancelled as ?2 says; complete_delete removes
-- it in the same transaction. Leans on the primary key.
INSERT INTO dead (position, queue_id, state, finish_time, token, action, dead_reason, attempt, max_attempts, priority, ready_time,
                  create_time, expire_time, worker_id, last_error, reason_code, content_type, idempotency_key,
                  ordering_key, wire_bytes, attributes, payload_bytes, payload)
SELECT position, queue_id, ?2, settle_time, token, mark_action, mark_dead_reason, attempt, max_attempts, priority, ready_time,
       create_time, expire_time, worker_id, coalesce(mark_error, ''), coalesce(mark_reason_code, ''), content_type, idempotency_key,
       coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = key_id), ''), wire_bytes, attributes, payload_bytes, payload
FROM message
WHERE position = ?1 AND state = 3
