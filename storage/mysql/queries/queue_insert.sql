-- A new queue at version 1. The caller has looked for the name under the lock of queue_turn;
-- the unique index queue_name refuses a second one in any case.
INSERT INTO queue (name, create_time, paused, default_lease_us, min_lease_us, max_lease_us, max_attempts, retry_min_us,
    retry_max_us, retry_multiplier, retry_jitter, max_in_flight, max_claims_per_second, ordering_mode,
    completed_retention_us, dead_retention_us, max_messages)
VALUES (:name, {{now}}, :paused, :default_lease_us, :min_lease_us, :max_lease_us, :max_attempts, :retry_min_us,
    :retry_max_us, :retry_multiplier, :retry_jitter, :max_in_flight, :max_claims_per_second, :ordering_mode,
    :completed_retention_us, :dead_retention_us, :max_messages)
