-- Removes up to $1 slots of queues that do not count their leases any more.
-- Leans on claim_slot_pkey and queue_pkey.
DELETE FROM queuebox.claim_slot s
USING (
    SELECT o.queue_id, o.seq
    FROM queuebox.queue q JOIN queuebox.claim_slot o ON o.queue_id = q.queue_id
    WHERE q.max_in_flight = 0
    LIMIT $1
) old
WHERE s.queue_id = old.queue_id AND s.seq = old.seq
