-- A live message. Leans on the primary key. The payload only where ?3 is set.
SELECT token, position, queue_id, idempotency_key, payload_bytes, content_type, attributes,
       coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = key_id), ''), priority, state, outcome,
       attempt, max_attempts, create_time, ready_time, expire_time, last_error, reason_code, worker_id, lease_end,
       CASE WHEN ?3 THEN payload END,
       state = 3, coalesce(outcome = 2, 0), coalesce(mark_dead_reason, 0), settle_time, settle_time + mark_delay, mark_error, mark_reason_code,
       mark_result
FROM message
WHERE position = ?2 AND queue_id = ?1
