-- Puts a message back whose claim was taken away: ready now, the attempt refunded where ?3 is set.
-- Leans on the primary key.
UPDATE message
SET state = 0, token = NULL, lease_end = NULL, lease = NULL, claim_time = NULL, attempt = attempt - iif(?3, 1, 0),
    place = 0, ready_time = CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
WHERE position = ?2 AND queue_id = ?1
RETURNING ready_time
