-- Keeps the counts of a queue, unless younger ones are there. Leans on the primary key.
INSERT INTO queue_stats (queue_id, as_of, ready, delayed, blocked, leased, lease_expired, completed, dead, oldest_ready)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (queue_id) DO UPDATE
SET as_of = excluded.as_of, ready = excluded.ready, delayed = excluded.delayed, blocked = excluded.blocked, leased = excluded.leased,
    lease_expired = excluded.lease_expired, completed = excluded.completed, dead = excluded.dead, oldest_ready = excluded.oldest_ready
WHERE as_of <= excluded.as_of
