-- Locks delayed messages whose time has come, the earliest first, and tells which of them are
-- claimable. The time is the one that the look has read. Leans on message_delayed.
SELECT TOP (@limit) m.id, m.urgency, m.ready_time, m.payload_bytes, m.wire_bytes,
    CAST(CASE WHEN {{claimable}} THEN 1 ELSE 0 END AS bit) AS claimable
FROM queuebox.message AS m WITH (UPDLOCK, READPAST, ROWLOCK, INDEX (message_delayed))
WHERE m.queue_id = @queue_id AND m.place = 1 AND m.ready_time <= @now
ORDER BY m.ready_time, m.id
OPTION (MAXDOP 1)
