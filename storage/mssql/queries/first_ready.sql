-- The first claimable message of one priority before a ready time (W7), in time that grows with
-- what lies before it. What somebody is writing is passed over. Leans on message_ready, whose
-- order it is.
SELECT TOP (1) m.ready_time
FROM queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, INDEX (message_ready))
WHERE m.queue_id = @queue_id AND m.place = 0 AND m.urgency = @urgency AND m.ready_time < @ready_time
  AND {{claimable}}
ORDER BY m.urgency, m.ready_time, m.id
