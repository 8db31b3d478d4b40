-- The earliest ready time of the delayed messages that are not due; one that somebody has locked
-- is passed over. Leans on message_delayed, one seek.
SELECT TOP (1) m.ready_time
FROM queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, INDEX (message_delayed))
WHERE m.queue_id = @queue_id AND m.place = 1 AND m.ready_time > @now
ORDER BY m.ready_time, m.id
