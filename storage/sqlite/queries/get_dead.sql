-- A dead or cancelled message that is kept. Leans on the primary key. The payload only where
-- ?3 is set.
SELECT m.position, m.queue_id, m.idempotency_key, m.payload_bytes, m.content_type, m.attributes, m.ordering_key, m.priority, m.state, m.dead_reason,
       m.attempt, m.max_attempts, m.create_time, m.ready_time, m.expire_time, m.last_error, m.reason_code, m.worker_id, m.finish_time, NULL,
       CASE WHEN ?3 THEN m.payload END
FROM dead AS m CROSS JOIN queue AS q ON q.id = m.queue_id
WHERE m.position = ?2 AND m.queue_id = ?1
  AND CASE WHEN m.state = 5 THEN m.finish_time + q.completed_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
           WHEN q.dead_retention = 0 THEN 1
           ELSE m.finish_time + q.dead_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) END
