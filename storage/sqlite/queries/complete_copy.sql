-- Copies messages of queue ?1 whose claims hold to the completed ones. ?2 lists the positions,
-- ?3 holds their tokens one after the other, ?4 is the storage clock as the transaction has
-- read it, ?5 the result of a single one. Leans on the primary key.
INSERT INTO completed (position, queue_id, finish_time, token, attempt, max_attempts, priority, ready_time, create_time,
                       expire_time, worker_id, last_error, reason_code, content_type, idempotency_key, ordering_key,
                       attributes, payload_bytes, payload, result)
SELECT m.position, m.queue_id, ?4, m.token, m.attempt, m.max_attempts, m.priority, m.ready_time, m.create_time,
       m.expire_time, m.worker_id, m.last_error, m.reason_code, m.content_type, m.idempotency_key,
       CASE WHEN m.key_id IS NULL THEN '' ELSE coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = m.key_id), '') END,
       m.attributes, m.payload_bytes, m.payload, ?5
FROM json_each(?2) AS j
CROSS JOIN message AS m
WHERE m.position = j.value AND m.queue_id = ?1
  AND m.state = 1
  AND m.token = substr(?3, 1 + 16 * j.key, 16)
  AND m.lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
