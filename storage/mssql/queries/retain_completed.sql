-- Locks the oldest completed messages of a queue between two times, @limit at most; what somebody
-- else has locked is passed over. The caller knows from the clock of an earlier statement until
-- when they have passed their retention. Leans on completed_finish.
SELECT TOP (@limit) m.id, m.token, m.finish_time, m.payload_bytes
FROM queuebox.completed AS m WITH (UPDLOCK, READPAST, ROWLOCK, INDEX (completed_finish))
WHERE m.queue_id = @queue_id AND m.finish_time >= @from AND m.finish_time <= @until
ORDER BY m.finish_time, m.id;
