-- Dead and cancelled messages that have passed the retention of their queue, ?1 at most:
-- cancelled ones are kept as long as completed ones, and a dead retention of 0 is for ever.
-- Reads the queues, and for each of them leans on dead_finish.
SELECT d.position, d.payload_bytes
FROM queue AS q
CROSS JOIN json_each('[4,5]') AS j
CROSS JOIN dead AS d
WHERE (j.value = 5 OR q.dead_retention > 0)
  AND d.queue_id = q.id AND d.state = j.value
  AND d.finish_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
      - CASE j.value WHEN 5 THEN q.completed_retention ELSE q.dead_retention END
LIMIT ?1
