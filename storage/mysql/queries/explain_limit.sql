-- What is used up of the limits of a queue (L1, L2): the bucket of its claims, and how many
-- leases are alive. The given time is the storage clock. No row where it never had a limit.
-- Leans on the primary keys.
SELECT l.rate, l.full_ns, (
    SELECT COUNT(*) FROM claim_slot AS s STRAIGHT_JOIN message AS m ON m.id = s.id
    WHERE s.queue_id = l.queue_id AND m.queue_id = s.queue_id AND (m.state = 3 OR (m.state = 1 AND m.lease_end > :now)))
FROM claim_limit AS l WHERE l.queue_id = :queue_id
