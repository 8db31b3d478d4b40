-- Makes a queue, unless the name is taken or the number of queues is at its bound ($2, 0 for
-- none). Leans on queue_name_key.
INSERT INTO queuebox.queue AS q (name, create_time, paused, default_lease_us, min_lease_us, max_lease_us, max_attempts,
    retry_min_us, retry_max_us, retry_multiplier, retry_jitter, max_in_flight, max_claims_per_second,
    ordering_mode, completed_retention_us, dead_retention_us, max_messages)
SELECT $1::text, clock_timestamp(), $3::boolean, $4::bigint, $5::bigint, $6::bigint, $7::integer,
    $8::bigint, $9::bigint, $10::double precision, $11::double precision, $12::integer, $13::double precision,
    $14::smallint, $15::bigint, $16::bigint, $17::bigint
WHERE $2::bigint = 0 OR (SELECT count(*) FROM queuebox.queue) < $2::bigint
ON CONFLICT (name) DO NOTHING
RETURNING q.queue_id, q.name, q.version, q.create_time, q.paused, q.default_lease_us, q.min_lease_us, q.max_lease_us,
    q.max_attempts, q.retry_min_us, q.retry_max_us, q.retry_multiplier, q.retry_jitter, q.max_in_flight,
    q.max_claims_per_second, q.ordering_mode, q.completed_retention_us, q.dead_retention_us, q.max_messages
