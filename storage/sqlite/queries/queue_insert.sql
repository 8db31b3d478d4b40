-- A new queue at version 1. The caller has looked for the name under the write lock.
INSERT INTO queue (name, create_time, version, paused, default_lease, min_lease, max_lease, max_attempts,
                   retry_min, retry_max, retry_multiplier, retry_jitter, max_in_flight, max_claims_per_second,
                   ordering, completed_retention, dead_retention, max_messages)
VALUES (?1, CAST(round(unixepoch('subsec') * 1000) AS INTEGER), 1, ?2, ?3, ?4, ?5, ?6,
        ?7, ?8, ?9, ?10, ?11, ?12,
        ?13, ?14, ?15, ?16)
