-- Leases messages to one call: token, lease end, claim time, worker and attempt in one
-- statement. ?1 lists the positions, ?2 holds their tokens one after the other. The
-- caller has chosen the positions in the same transaction, under the write lock. Leans on
-- the primary key, and writes no indexed column.
UPDATE message
SET state = 1, token = substr(?2, 1 + 16 * j.key, 16), lease_end = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + ?3,
    lease = ?3, claim_time = CAST(round(unixepoch('subsec') * 1000) AS INTEGER), worker_id = ?4, attempt = attempt + 1
FROM json_each(?1) AS j
WHERE position = j.value
RETURNING token, position, queue_id, idempotency_key, payload_bytes, content_type, attributes,
          coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = key_id), ''), priority, state, outcome,
          attempt, max_attempts, create_time, ready_time, expire_time, last_error, reason_code, worker_id, lease_end, payload
