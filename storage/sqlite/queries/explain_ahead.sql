-- How many messages a claim would take before the one of queue ?1 with the priority ?2, the ready
-- time ?3 and the position ?4, up to 10,001: those that are ready with a larger priority, those of
-- its own in front of it, and delayed ones that are due. What no claim would take is not counted.
-- ?5 is the storage clock as the snapshot has read it. Leans on message_ready and message_delayed.
SELECT count(*) FROM (
SELECT 1 FROM message
WHERE queue_id = ?1 AND place = 0 AND priority > ?2 AND ready_time <= ?5
  AND CASE state WHEN 0 THEN 1
                 WHEN 1 THEN lease_end <= ?5
                 ELSE 0 END
  AND (max_attempts = 0 OR attempt < max_attempts)
  AND NOT cancel_requested
  AND (expire_time IS NULL OR expire_time > ?5)
UNION ALL
SELECT 1 FROM message
WHERE queue_id = ?1 AND place = 0 AND priority = ?2 AND ready_time <= ?3 AND (ready_time < ?3 OR position < ?4)
  AND CASE state WHEN 0 THEN 1
                 WHEN 1 THEN lease_end <= ?5
                 ELSE 0 END
  AND (max_attempts = 0 OR attempt < max_attempts)
  AND NOT cancel_requested
  AND (expire_time IS NULL OR expire_time > ?5)
UNION ALL
SELECT 1 FROM message
WHERE queue_id = ?1 AND place = 1 AND ready_time <= ?5
  AND (priority > ?2 OR priority = ?2 AND (ready_time < ?3 OR ready_time = ?3 AND position < ?4))
  AND CASE state WHEN 0 THEN 1
                 WHEN 1 THEN lease_end <= ?5
                 ELSE 0 END
  AND (max_attempts = 0 OR attempt < max_attempts)
  AND NOT cancel_requested
  AND (expire_time IS NULL OR expire_time > ?5)
LIMIT 10001)
