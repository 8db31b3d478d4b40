-- Keeps counts, unless younger ones are there. Leans on queue_stats_pkey.
INSERT INTO queuebox.queue_stats AS s (queue_id, as_of, ready, delayed, blocked, leased, lease_expired, completed, dead, oldest_ready)
SELECT * FROM unnest($1::integer[], $2::timestamptz[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::timestamptz[])
ON CONFLICT (queue_id) DO UPDATE
SET as_of = excluded.as_of, ready = excluded.ready, delayed = excluded.delayed, blocked = excluded.blocked, leased = excluded.leased,
    lease_expired = excluded.lease_expired, completed = excluded.completed, dead = excluded.dead, oldest_ready = excluded.oldest_ready
WHERE s.as_of <= excluded.as_of
