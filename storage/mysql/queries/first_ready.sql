-- The first claimable message of one priority before a ready time (W7), in time that grows with
-- what lies before it. Leans on message_ready, whose order it is.
SELECT m.ready_time
FROM message AS m FORCE INDEX (message_ready)
WHERE m.queue_id = :queue_id AND m.place = 0 AND m.urgency = :urgency AND m.ready_time < :ready_time
  AND {{claimable}}
ORDER BY m.urgency, m.ready_time, m.id
LIMIT 1
