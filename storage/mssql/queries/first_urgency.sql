-- The next priority that the ready set has, with its sign turned. Leans on message_ready, one seek.
SELECT TOP (1) m.urgency
FROM queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, INDEX (message_ready))
WHERE m.queue_id = @queue_id AND m.place = 0 AND m.urgency >= @urgency
ORDER BY m.urgency
