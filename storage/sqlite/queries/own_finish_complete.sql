-- Copies a marked message to the completed ones; complete_delete removes it in the same
-- transaction. Leans on the primary key.
INSERT INTO completed (position, queue_id, finish_time, token, attempt, max_attempts, priority, ready_time, create_time,
                       expire_time, worker_id, last_error, reason_code, content_type, idempotency_key, ordering_key,
                       attributes, payload_bytes, payload, result)
SELECT m.position, m.queue_id, m.settle_time, m.token, m.attempt, m.max_attempts, m.priority, m.ready_time, m.create_time,
       m.expire_time, m.worker_id, m.last_error, m.reason_code, m.content_type, m.idempotency_key,
       coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = m.key_id), ''),
       m.attributes, m.payload_bytes, m.payload, m.mark_result
FROM message AS m
WHERE m.position = ?1 AND m.state = 3
