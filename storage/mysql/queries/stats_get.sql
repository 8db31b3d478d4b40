-- The counts of a queue as they were last taken; nulls where they never were. Leans on the primary
-- keys.
SELECT t.as_of, t.ready, t.delayed_count, t.blocked, t.leased, t.lease_expired, t.completed, t.dead, t.oldest_ready
FROM queue AS q
LEFT JOIN queue_stats AS t FORCE INDEX (PRIMARY) ON t.queue_id = q.queue_id
WHERE q.queue_id = :queue_id
