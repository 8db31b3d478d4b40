-- The first claimable message of one priority before a ready time (W7), in time that grows with
-- what lies before it. What is claimable is what claim_scan takes; ?4 is the storage clock.
-- Leans on message_ready alone, whose order it is.
SELECT ready_time, position
FROM message
WHERE queue_id = ?1 AND place = 0 AND priority = ?2 AND ready_time < min(?3, ?4 + 1)
  AND CASE state WHEN 0 THEN 1
                 WHEN 1 THEN lease_end <= ?4
                 ELSE 0 END
  AND (max_attempts = 0 OR attempt < max_attempts)
  AND NOT cancel_requested
  AND (expire_time IS NULL OR expire_time > ?4)
ORDER BY ready_time, position
LIMIT 1
