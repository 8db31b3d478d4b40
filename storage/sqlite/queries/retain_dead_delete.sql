-- Deletes those of the listed dead and cancelled messages that have passed the retention that
-- their queue has by now; no retention (NULL) deletes nothing. Leans on the primary keys.
DELETE FROM dead
WHERE position IN (SELECT value FROM json_each(?1))
  AND finish_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - (
      SELECT CASE WHEN dead.state = 5 THEN q.completed_retention ELSE nullif(q.dead_retention, 0) END
      FROM queue AS q WHERE q.id = dead.queue_id)
RETURNING queue_id, position, idempotency_key
