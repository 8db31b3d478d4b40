-- A page of live messages, newest first, before position ?2 and from ?13 on. Walks the primary key downwards.
SELECT m.token, m.position, m.queue_id, m.idempotency_key, m.payload_bytes, m.content_type, m.attributes, coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = m.key_id), ''), m.priority, m.state, m.outcome,
       m.attempt, m.max_attempts, m.create_time, m.ready_time, m.expire_time, m.last_error, m.reason_code, m.worker_id, m.lease_end,
       CASE WHEN ?11 THEN m.payload END,
       m.state = 3, coalesce(m.outcome = 2, 0), coalesce(m.mark_dead_reason, 0), m.settle_time, m.settle_time + m.mark_delay, m.mark_error, m.mark_reason_code,
       m.mark_result
FROM message AS m
WHERE m.queue_id = ?1 AND m.position < ?2 AND m.position >= ?13
  AND (json_array_length(?3) = 0 OR CASE WHEN m.state = 3
      THEN CASE m.outcome WHEN 1 THEN 2 WHEN 3 THEN 4 WHEN 5 THEN 5 ELSE 0 END
      ELSE m.state END IN (SELECT value FROM json_each(?3)))
  AND (?4 = '' OR m.key_id = (SELECT k.id FROM ordering_key AS k WHERE k.queue_id = ?1 AND k.key = ?4))
  AND {{filter}}
  AND (json_array_length(?10) = 0 OR m.position IN (SELECT value FROM json_each(?10)))
ORDER BY m.position DESC
LIMIT ?12
