-- The next dead and cancelled messages of a queue after an id. Leans on dead_queue.
SELECT m.id FROM dead AS m FORCE INDEX (dead_queue)
WHERE m.queue_id = :queue_id AND m.id > :after ORDER BY m.id LIMIT :look
