-- Notes that the leases were looked for which were granted while nobody counted (L1). A claim
-- that began before max_in_flight was set may commit after, so they are looked for a second and
-- twelve seconds later once more; no statement of a server runs that long. Leans on
-- claim_limit_queue.
UPDATE queuebox.claim_limit
SET fill_time = CASE
    WHEN {{now}} < DATEADD(second, 1, set_time) THEN DATEADD(second, 1, set_time)
    WHEN {{now}} < DATEADD(second, 12, set_time) THEN DATEADD(second, 12, set_time)
    END
WHERE queue_id = @queue_id;
SELECT @@ROWCOUNT AS changed;
