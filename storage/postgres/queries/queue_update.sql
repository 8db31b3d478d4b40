-- Stores all settings, where the version is the one named (0: any). Leans on queue_name_key.
UPDATE queuebox.queue q
SET version = q.version + 1, paused = $3::boolean, default_lease_us = $4::bigint, min_lease_us = $5::bigint,
    max_lease_us = $6::bigint, max_attempts = $7::integer, retry_min_us = $8::bigint, retry_max_us = $9::bigint,
    retry_multiplier = $10::double precision, retry_jitter = $11::double precision, max_in_flight = $12::integer,
    max_claims_per_second = $13::double precision, ordering_mode = $14::smallint,
    completed_retention_us = $15::bigint, dead_retention_us = $16::bigint, max_messages = $17::bigint
WHERE q.name = $1::text AND ($2::bigint = 0 OR q.version = $2::bigint)
RETURNING q.queue_id, q.name, q.version, q.create_time, q.paused, q.default_lease_us, q.min_lease_us, q.max_lease_us,
    q.max_attempts, q.retry_min_us, q.retry_max_us, q.retry_multiplier, q.retry_jitter, q.max_in_flight,
    q.max_claims_per_second, q.ordering_mode, q.completed_retention_us, q.dead_retention_us, q.max_messages
