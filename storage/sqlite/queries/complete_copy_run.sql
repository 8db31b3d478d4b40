-- As complete_copy, for the messages at the positions ?2 to ?6: ?3 holds their tokens one after
-- the other. Leans on the primary key.
INSERT INTO completed (position, queue_id, finish_time, token, attempt, max_attempts, priority, ready_time, create_time,
                       expire_time, worker_id, last_error, reason_code, content_type, idempotency_key, ordering_key,
                       attributes, payload_bytes, payload, result)
SELECT m.position, m.queue_id, ?4, m.token, m.attempt, m.max_attempts, m.priority, m.ready_time, m.create_time,
       m.expire_time, m.worker_id, m.last_error, m.reason_code, m.content_type, m.idempotency_key,
       CASE WHEN m.key_id IS NULL THEN '' ELSE coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = m.key_id), '') END,
       m.attributes, m.payload_bytes, m.payload, ?5
FROM message AS m
WHERE m.position BETWEEN ?2 AND ?6 AND m.queue_id = ?1
  AND m.state = 1
  AND m.token = substr(?3, 1 + 16 * (m.position - ?2), 16)
  AND m.lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
