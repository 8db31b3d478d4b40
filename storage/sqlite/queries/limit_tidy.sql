-- Removes the slots of messages that are not leased any more. Leans on the primary keys of
-- claim_slot and message.
DELETE FROM claim_slot
WHERE queue_id = ?1
  AND NOT EXISTS (
    SELECT 1 FROM message AS m
    WHERE m.position = claim_slot.position
      AND CASE m.state WHEN 1 THEN m.lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
                       WHEN 3 THEN 1
                       ELSE 0 END)
