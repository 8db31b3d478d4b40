-- The time of the oldest completed messages of a queue from a time on: nothing has to be looked for
-- before that has passed its retention. Leans on completed_finish; takes no lock.
SELECT TOP (1) m.finish_time
FROM queuebox.completed AS m WITH (NOLOCK, INDEX (completed_finish))
WHERE m.queue_id = @queue_id AND m.finish_time >= @from
ORDER BY m.finish_time;
