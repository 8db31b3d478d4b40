-- Whether a claim is still held. The four conditions of the fence.
SELECT 1 FROM message
WHERE position = ?2 AND queue_id = ?1
  AND state = 1
  AND token = ?3
  AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
