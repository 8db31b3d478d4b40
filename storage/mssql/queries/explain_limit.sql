-- What is used up of the limits of a queue (L1, L2): the bucket of its claims, and how many
-- leases are alive. The given time is the storage clock. No row where it never had a limit. It
-- waits for nobody. Leans on the primary keys.
SELECT l.rate, l.full_ns, (
    SELECT COUNT(*) FROM queuebox.claim_slot AS s WITH (NOLOCK)
    INNER JOIN queuebox.message AS m WITH (NOLOCK) ON m.id = s.id
    WHERE s.queue_id = l.queue_id AND m.queue_id = s.queue_id AND (m.state = 3 OR (m.state = 1 AND m.lease_end > @now))) AS leased
FROM queuebox.claim_limit AS l WITH (NOLOCK) WHERE l.queue_id = @queue_id
