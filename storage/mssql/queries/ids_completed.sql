-- The ids of the completed messages of a queue, @limit at most, whichever: where there are more, a
-- list walks over the table. Leans on completed_finish alone; waits for nobody, and what it gives is
-- looked at again.
SELECT TOP (@limit) m.id
FROM queuebox.completed AS m WITH (NOLOCK, INDEX (completed_finish))
WHERE m.queue_id = @queue_id
ORDER BY m.finish_time;
