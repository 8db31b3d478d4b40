-- Whether another claim of this pending message was settled and counted (S8). Leans on the
-- primary keys; the plus keeps the planner off the index by time.
SELECT 1 FROM settlement
WHERE position = ?2 AND token <> ?3 AND +queue_id = ?1
  AND EXISTS (SELECT 1 FROM message WHERE position = ?2 AND attempt > 0)
LIMIT 1
