-- A page of completed messages that are kept, newest first, before position ?2 and from ?13 on. Walks the
-- primary key downwards; the plus sign keeps it from sorting what an index gives.
SELECT m.position, m.queue_id, m.idempotency_key, m.payload_bytes, m.content_type, m.attributes, m.ordering_key, m.priority, 2, 0,
       m.attempt, m.max_attempts, m.create_time, m.ready_time, m.expire_time, m.last_error, m.reason_code, m.worker_id, m.finish_time, m.result,
       CASE WHEN ?11 THEN m.payload END
FROM completed AS m CROSS JOIN queue AS q ON q.id = m.queue_id
WHERE +m.queue_id = ?1 AND m.position < ?2 AND m.position >= ?13
  AND m.finish_time + q.completed_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
  AND (json_array_length(?3) = 0 OR 2 IN (SELECT value FROM json_each(?3)))
  AND (?4 = '' OR m.ordering_key = ?4)
  AND {{filter}}
  AND (json_array_length(?10) = 0 OR m.position IN (SELECT value FROM json_each(?10)))
ORDER BY m.position DESC
LIMIT ?12
