-- A message that is still held by this token (C14). The four conditions of the fence.
SELECT token, position, queue_id, idempotency_key, payload_bytes, content_type, attributes,
       coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = key_id), ''), priority, state, outcome,
       attempt, max_attempts, create_time, ready_time, expire_time, last_error, reason_code, worker_id, lease_end, payload
FROM message
WHERE position = ?2 AND queue_id = ?1
  AND state = 1
  AND token = ?3
  AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
