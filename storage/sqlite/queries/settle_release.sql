-- Puts a message back after a Release: ready or delayed by ?4, the attempt refunded.
UPDATE message
SET state = 0, token = NULL, lease_end = NULL, lease = NULL, claim_time = NULL, attempt = attempt - 1,
    place = CASE WHEN ?4 > 0 THEN 1 ELSE 0 END, ready_time = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + ?4
WHERE position = ?2 AND queue_id = ?1
  AND state = 1
  AND token = ?3
  AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
RETURNING ready_time, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
