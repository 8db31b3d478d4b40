-- What scanQueue of rowlock reads of a queue q.
q.queue_id, q.name, q.version, q.create_time, q.paused, q.default_lease_us, q.min_lease_us, q.max_lease_us,
    q.max_attempts, q.retry_min_us, q.retry_max_us, q.retry_multiplier, q.retry_jitter, q.max_in_flight,
    q.max_claims_per_second, q.ordering_mode, q.completed_retention_us, q.dead_retention_us, q.max_messages
