-- The counts of a queue as they were last taken; nulls where they never were. Leans on the
-- primary keys of queue and queue_stats.
SELECT s.as_of, s.ready, s.delayed, s.blocked, s.leased, s.lease_expired, s.completed, s.dead, s.oldest_ready
FROM queue AS q LEFT JOIN queue_stats AS s ON s.queue_id = q.id
WHERE q.id = ?1
