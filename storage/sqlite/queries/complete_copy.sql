-- Copies messages whose claims hold to the completed ones. ?1 lists queue id and position,
-- ?2 holds the tokens one after the other; ?3 is the result of a single one. Leans on the
-- primary key. What it returns, complete_delete removes in the same transaction.
INSERT INTO completed (position, queue_id, finish_time, token, attempt, max_attempts, priority, ready_time, create_time,
                       expire_time, worker_id, last_error, reason_code, content_type, idempotency_key, ordering_key,
                       attributes, payload_bytes, payload, result)
SELECT m.position, m.queue_id, CAST(round(unixepoch('subsec') * 1000) AS INTEGER), m.token, m.attempt, m.max_attempts, m.priority, m.ready_time, m.create_time,
       m.expire_time, m.worker_id, m.last_error, m.reason_code, m.content_type, m.idempotency_key,
       coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = m.key_id), ''),
       m.attributes, m.payload_bytes, m.payload, ?3
FROM json_each(?1) AS j
CROSS JOIN message AS m
WHERE m.position = j.value ->> 1 AND m.queue_id = j.value ->> 0
  AND m.state = 1
  AND m.token = substr(?2, 1 + 16 * j.key, 16)
  AND m.lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
RETURNING position, finish_time
