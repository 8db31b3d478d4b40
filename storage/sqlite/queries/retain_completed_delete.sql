-- Deletes those of the listed completed messages that have passed the retention that their
-- queue has by now. Leans on the primary keys.
DELETE FROM completed
WHERE position IN (SELECT value FROM json_each(?1))
  AND finish_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - (SELECT q.completed_retention FROM queue AS q WHERE q.id = completed.queue_id)
RETURNING queue_id, position, idempotency_key
