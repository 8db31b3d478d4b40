-- Counts the leases that were granted before the queue had max_in_flight (L1).
-- Leans on message_ready.
INSERT OR IGNORE INTO claim_slot (queue_id, position)
SELECT queue_id, position FROM message
WHERE queue_id = ?1 AND place = 0 AND state IN (1, 3)
