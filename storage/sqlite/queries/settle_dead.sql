-- Copies a message to the dead ones, in the state ?8: by the action ?7 of its worker, for the
-- reason ?4, with his error and code; a Release (4) has none, and leaves those of the try
-- before. What it returns, complete_delete removes in the same transaction.
INSERT INTO dead (position, queue_id, state, finish_time, token, action, dead_reason, attempt, max_attempts, priority, ready_time,
                  create_time, expire_time, worker_id, last_error, reason_code, content_type, idempotency_key,
                  ordering_key, wire_bytes, attributes, payload_bytes, payload)
SELECT position, queue_id, ?8, CAST(round(unixepoch('subsec') * 1000) AS INTEGER), token, ?7, ?4, attempt, max_attempts, priority, ready_time,
       create_time, expire_time, worker_id, iif(?7 = 4, last_error, ?5), iif(?7 = 4, reason_code, ?6), content_type, idempotency_key,
       coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = key_id), ''), wire_bytes, attributes, payload_bytes, payload
FROM message
WHERE position = ?2 AND queue_id = ?1
  AND state = 1
  AND token = ?3
  AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
RETURNING finish_time
