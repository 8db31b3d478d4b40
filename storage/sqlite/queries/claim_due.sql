-- Moves delayed messages whose time has come to the ready set, the earliest first, ?2 at
-- most. Leans on message_delayed. A message that would land below the scan hint of its
-- priority (?3, an object from priority to time) enters at the hint, so that it is seen.
-- ?4 is the storage clock as the transaction has read it, which is that of the scan.
UPDATE message
SET place = 0, ready_time = max(ready_time, coalesce((SELECT h.value FROM json_each(?3) AS h WHERE h.key = CAST(message.priority AS TEXT)), ready_time))
WHERE position IN (
    SELECT position FROM message
    WHERE queue_id = ?1 AND place = 1 AND ready_time <= ?4
    ORDER BY ready_time
    LIMIT ?2)
