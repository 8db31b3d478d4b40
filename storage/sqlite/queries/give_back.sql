-- Gives a claim back: pending, claimable at once, the attempt refunded (C15).
UPDATE message
SET state = 0, token = NULL, lease_end = NULL, lease = NULL, claim_time = NULL, attempt = attempt - 1,
    place = 0, ready_time = CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
WHERE position = ?2 AND queue_id = ?1
  AND state = 1
  AND token = ?3
  AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
RETURNING key_id
