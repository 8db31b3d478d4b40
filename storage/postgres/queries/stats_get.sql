-- Reads the counts of a queue as they were last taken; nulls where they never were.
-- Leans on queue_pkey and queue_stats_pkey.
SELECT s.as_of, s.ready, s.delayed, s.blocked, s.leased, s.lease_expired, s.completed, s.dead, s.oldest_ready
FROM queuebox.queue q LEFT JOIN LATERAL (
    SELECT * FROM queuebox.queue_stats r WHERE r.queue_id = q.queue_id LIMIT 1
) s ON true
WHERE q.queue_id = $1::integer
