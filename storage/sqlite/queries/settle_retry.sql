-- Puts a message back after a Retry: ready or delayed by ?4, with the error of the try.
UPDATE message
SET state = 0, token = NULL, lease_end = NULL, lease = NULL, claim_time = NULL,
    place = CASE WHEN ?4 > 0 THEN 1 ELSE 0 END, ready_time = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + ?4,
    last_error = ?5, reason_code = ?6
WHERE position = ?2 AND queue_id = ?1
  AND state = 1
  AND token = ?3
  AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
RETURNING ready_time, CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
