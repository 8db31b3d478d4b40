-- Puts a message back whose claim is taken away: ready now, the attempt refunded where :refund
-- is set. Leans on the primary key.
UPDATE message
SET state = 0, place = 0, ready_time = :now, attempt = attempt - IF(:refund, 1, 0),
    token = NULL, lease_end = NULL, claim_time = NULL, lease_us = NULL
WHERE id = :id AND queue_id = :queue_id AND state = 1 AND token = :token AND lease_end > {{now}}
