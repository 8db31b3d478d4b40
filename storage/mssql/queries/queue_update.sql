-- All settings of a queue anew, and the next version. The caller holds its row. Leans on the
-- primary key.
UPDATE queuebox.queue
SET version = version + 1, paused = @paused, default_lease_us = @default_lease_us, min_lease_us = @min_lease_us,
    max_lease_us = @max_lease_us, max_attempts = @max_attempts, retry_min_us = @retry_min_us,
    retry_max_us = @retry_max_us, retry_multiplier = @retry_multiplier, retry_jitter = @retry_jitter,
    max_in_flight = @max_in_flight, max_claims_per_second = @max_claims_per_second,
    ordering_mode = @ordering_mode, completed_retention_us = @completed_retention_us,
    dead_retention_us = @dead_retention_us, max_messages = @max_messages
WHERE queue_id = @queue_id;
SELECT @@ROWCOUNT AS changed;
