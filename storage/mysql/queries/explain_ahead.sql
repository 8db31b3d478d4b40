-- How many messages a claim would take before the given one of a queue, up to 10,001: those
-- that are ready with a larger priority, those of its own in front of it, and delayed ones that
-- are due. What no claim would take is not counted. The given time is the storage clock.
-- Leans on message_ready and message_delayed.
SELECT COUNT(*) FROM (
    SELECT 1 AS one FROM message AS m FORCE INDEX (message_ready)
    WHERE m.queue_id = :queue_id AND m.place = 0 AND m.urgency < :urgency AND m.ready_time <= :now
      AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= :now))
      AND NOT m.cancel_requested AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
      AND (m.expire_time IS NULL OR m.expire_time > :now)
    UNION ALL
    SELECT 1 FROM message AS m FORCE INDEX (message_ready)
    WHERE m.queue_id = :queue_id AND m.place = 0 AND m.urgency = :urgency AND m.ready_time <= :ready_time
      AND (m.ready_time < :ready_time OR m.id < :id)
      AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= :now))
      AND NOT m.cancel_requested AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
      AND (m.expire_time IS NULL OR m.expire_time > :now)
    UNION ALL
    SELECT 1 FROM message AS m FORCE INDEX (message_delayed)
    WHERE m.queue_id = :queue_id AND m.place = 1 AND m.ready_time <= :now
      AND (m.urgency < :urgency OR (m.urgency = :urgency AND (m.ready_time < :ready_time OR (m.ready_time = :ready_time AND m.id < :id))))
      AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= :now))
      AND NOT m.cancel_requested AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
      AND (m.expire_time IS NULL OR m.expire_time > :now)
    LIMIT 10001
) AS ahead
