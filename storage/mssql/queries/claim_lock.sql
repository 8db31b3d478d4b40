-- Locks claimable messages at or after a place in the order of a claim, in that order, and
-- passes over what somebody else has locked (C3, C9, C19). Payloads are not read: what is cut
-- or left is not paid for (C13). The claims of a queue come one after the other, by their
-- application lock.
-- Leans on message_ready, whose order it is; the rows behind the last one are not touched.
SELECT TOP (@limit) m.id, m.urgency, m.ready_time, m.payload_bytes, m.wire_bytes, CAST(1 AS bit) AS claimable
FROM queuebox.message AS m WITH (UPDLOCK, READPAST, ROWLOCK, INDEX (message_ready))
WHERE m.queue_id = @queue_id AND m.place = 0 AND m.urgency >= @urgency AND m.urgency <= @last_urgency
  AND (m.urgency > @urgency OR m.ready_time >= @ready_time)
  AND {{claimable}}
ORDER BY m.urgency, m.ready_time, m.id
OPTION (MAXDOP 1)
