-- Whether there are settlements that retain_history_delete would delete.
SELECT 1
FROM queue AS q
CROSS JOIN settlement AS s
WHERE s.queue_id = q.id
  AND s.settle_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - max(q.completed_retention, 600000)
LIMIT 1
