-- Queues after a name, in the order of its bytes. Leans on the unique index of the name.
SELECT id, name, create_time, version, paused, default_lease, min_lease, max_lease, max_attempts,
       retry_min, retry_max, retry_multiplier, retry_jitter, max_in_flight, max_claims_per_second,
       ordering, completed_retention, dead_retention, max_messages
FROM queue
WHERE name > ?1
ORDER BY name
LIMIT ?2
