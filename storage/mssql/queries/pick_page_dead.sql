-- The next dead and cancelled messages of a queue after an id. It waits for nobody; what it
-- finds is judged again. Leans on dead_queue.
SELECT TOP (@look) m.id FROM queuebox.dead AS m WITH (NOLOCK, INDEX (dead_queue))
WHERE m.queue_id = @queue_id AND m.id > @after ORDER BY m.id
