-- How many messages of a queue are leased, settling ones too, and when the first lease
-- ends (L1). Leans on the primary keys of claim_slot and message.
SELECT count(*), min(CASE m.state WHEN 1 THEN m.lease_end END)
FROM claim_slot AS s CROSS JOIN message AS m ON m.position = s.position
WHERE s.queue_id = ?1
  AND CASE m.state WHEN 1 THEN m.lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
                   WHEN 3 THEN 1
                   ELSE 0 END
