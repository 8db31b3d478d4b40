-- Locks delayed messages whose time has come, the earliest first, and tells which of them are
-- claimable. The time is the one that the look has read: the clock itself bounds no range of an
-- index, and would walk over all that is delayed (C12).
-- Leans on message_delayed.
SELECT m.id, m.urgency, m.ready_time, m.payload_bytes, m.wire_bytes, {{claimable}}
FROM message AS m FORCE INDEX (message_delayed)
WHERE m.queue_id = :queue_id AND m.place = 1 AND m.ready_time <= :now
ORDER BY m.ready_time, m.id
LIMIT :limit
FOR UPDATE SKIP LOCKED
