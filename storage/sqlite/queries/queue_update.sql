-- All settings of a queue anew, and the next version. Leans on the unique index of the name.
UPDATE queue
SET version = version + 1, paused = ?2, default_lease = ?3, min_lease = ?4, max_lease = ?5, max_attempts = ?6,
    retry_min = ?7, retry_max = ?8, retry_multiplier = ?9, retry_jitter = ?10, max_in_flight = ?11,
    max_claims_per_second = ?12, ordering = ?13, completed_retention = ?14, dead_retention = ?15, max_messages = ?16
WHERE name = ?1
