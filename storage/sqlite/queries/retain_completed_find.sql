-- Completed messages that have passed the retention of their queue, ?1 at most. Reads the
-- queues, and for each of them leans on completed_finish.
SELECT c.position, c.payload_bytes
FROM queue AS q
CROSS JOIN completed AS c
WHERE c.queue_id = q.id
  AND c.finish_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - q.completed_retention
LIMIT ?1
