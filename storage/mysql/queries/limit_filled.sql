-- Notes that the leases were looked for which were granted while nobody counted (L1). A claim
-- that began before max_in_flight was set may commit after, so they are looked for a second and
-- twelve seconds later once more; no statement of a server runs that long. Leans on the primary
-- key.
UPDATE claim_limit
SET fill_time = CASE
    WHEN {{now}} < set_time + INTERVAL 1 SECOND THEN set_time + INTERVAL 1 SECOND
    WHEN {{now}} < set_time + INTERVAL 12 SECOND THEN set_time + INTERVAL 12 SECOND
    END
WHERE queue_id = :queue_id
