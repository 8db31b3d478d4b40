-- Queues in the order of their ids, with what they keep and for how long, and the clock. Leans on
-- the primary key.
SELECT TOP (@limit) q.queue_id, q.completed_retention_us, q.dead_retention_us, {{now}} AS now
FROM queuebox.queue AS q
WHERE q.queue_id > @after
ORDER BY q.queue_id;
