-- Queues in the order of their ids, with what they keep and for how long, and the clock. Leans on
-- the primary key.
SELECT q.queue_id, q.completed_retention_us, q.dead_retention_us, {{now}} AS now
FROM queue AS q
WHERE q.queue_id > :after
ORDER BY q.queue_id
LIMIT :limit
