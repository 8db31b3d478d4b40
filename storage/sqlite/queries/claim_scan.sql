-- Claimable messages of one priority from a ready time on, in the order of a claim: pending
-- and ready, or processing with the lease over, with an attempt left, not expired (E7) and not
-- asked to be cancelled (S14); what is skipped, the sweep ends (C2, C3, C6, C9, C18).
-- ?5 is the storage clock as the transaction has read it: the lease that follows counts from
-- there, so an old lease must be over by then. What the claim writes itself is not read, and what
-- most messages do not have is NULL, since every column that has a value costs as much as the row.
-- Leans on message_ready alone, whose order it is: the caller stops reading when he has enough.
SELECT position, wire_bytes, payload_bytes, content_type, attempt, max_attempts, create_time, ready_time, expire_time,
       nullif(idempotency_key, ''), attributes,
       CASE WHEN key_id IS NOT NULL THEN (SELECT k.key FROM ordering_key AS k WHERE k.id = key_id) END,
       nullif(last_error, ''), nullif(reason_code, ''), payload
FROM message
WHERE queue_id = ?1 AND place = 0 AND priority = ?2 AND ready_time >= ?3 AND ready_time <= ?5
  AND CASE state WHEN 0 THEN 1
                 WHEN 1 THEN lease_end <= ?5
                 ELSE 0 END
  AND (max_attempts = 0 OR attempt < max_attempts)
  AND NOT cancel_requested
  AND (expire_time IS NULL OR expire_time > ?5)
ORDER BY ready_time, position
LIMIT ?4
