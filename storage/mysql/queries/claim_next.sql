-- The earliest ready time of the delayed messages that are not due. Leans on message_delayed, one
-- seek.
SELECT m.ready_time FROM message AS m FORCE INDEX (message_delayed)
WHERE m.queue_id = :queue_id AND m.place = 1 AND m.ready_time > :now
ORDER BY m.ready_time, m.id
LIMIT 1
