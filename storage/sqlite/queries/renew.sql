-- Sets a lease end anew from the clock and touches nothing else but the length (R1, R4). A
-- length of 0 repeats the last one, cut to ?5. Leans on the primary key, writes no index.
UPDATE message
SET lease_end = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + CASE WHEN ?4 > 0 THEN ?4 ELSE min(lease, ?5) END,
    lease = CASE WHEN ?4 > 0 THEN ?4 ELSE min(lease, ?5) END
WHERE position = ?2 AND queue_id = ?1
  AND state = 1
  AND token = ?3
  AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
RETURNING lease_end, cancel_requested
