-- A page of dead and cancelled messages that are kept, newest first, before position ?2 and from ?13 on.
-- Leans on dead_queue.
SELECT m.position, m.queue_id, m.idempotency_key, m.payload_bytes, m.content_type, m.attributes, m.ordering_key, m.priority, m.state, m.dead_reason,
       m.attempt, m.max_attempts, m.create_time, m.ready_time, m.expire_time, m.last_error, m.reason_code, m.worker_id, m.finish_time, NULL,
       CASE WHEN ?11 THEN m.payload END
FROM dead AS m CROSS JOIN queue AS q ON q.id = m.queue_id
WHERE m.queue_id = ?1 AND m.position < ?2 AND m.position >= ?13
  AND CASE WHEN m.state = 5 THEN m.finish_time + q.completed_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
           WHEN q.dead_retention = 0 THEN 1
           ELSE m.finish_time + q.dead_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) END
  AND (json_array_length(?3) = 0 OR m.state IN (SELECT value FROM json_each(?3)))
  AND (json_array_length(?14) = 0 OR m.dead_reason IN (SELECT value FROM json_each(?14)))
  AND (?4 = '' OR m.ordering_key = ?4)
  AND {{filter}}
  AND (json_array_length(?10) = 0 OR m.position IN (SELECT value FROM json_each(?10)))
ORDER BY m.position DESC
LIMIT ?12
