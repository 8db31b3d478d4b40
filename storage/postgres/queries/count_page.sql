-- Counts a page of each queue: up to $5 live, completed and dead messages after a position,
-- nothing where that is null. A marked message counts as what its mark says, one whose expire
-- time has passed is not ready any more (E7). Takes no lock. Leans on message_pkey,
-- completed_position, dead_pkey.
WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT u.queue_id, c.now,
    live.n, live.last, live.ready, live.delayed, live.blocked, live.leased, live.over, live.completed, live.dead, live.oldest,
    done.n, done.last, done.kept, gone.n, gone.last, gone.kept
FROM c
CROSS JOIN unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (queue_id, live_after, completed_after, dead_after)
CROSS JOIN LATERAL (
    SELECT g.completed_retention_us * interval '1 microsecond' AS completed_retention,
        g.dead_retention_us * interval '1 microsecond' AS dead_retention
    FROM queuebox.queue g WHERE g.queue_id = u.queue_id LIMIT 1
) q
CROSS JOIN LATERAL (
    SELECT count(*) AS n, max(s.position) AS last,
        count(*) FILTER (WHERE s.pending AND s.place <> 2 AND s.ready_time <= c.now) AS ready,
        count(*) FILTER (WHERE s.pending AND s.place <> 2 AND s.ready_time > c.now) AS delayed,
        count(*) FILTER (WHERE s.pending AND s.place = 2) AS blocked,
        count(*) FILTER (WHERE s.state = 1 AND s.lease_end > c.now) AS leased,
        count(*) FILTER (WHERE s.state = 1 AND s.lease_end <= c.now) AS over,
        count(*) FILTER (WHERE s.state = 3 AND s.outcome = 1) AS completed,
        count(*) FILTER (WHERE s.state = 3 AND s.outcome = 3) AS dead,
        min(s.ready_time) FILTER (WHERE s.pending AND s.place <> 2 AND s.ready_time <= c.now) AS oldest
    FROM (
        SELECT m.position, m.place, m.state, m.outcome, m.lease_end,
            CASE WHEN m.state = 3 AND m.outcome = 2 THEN m.settle_time + m.mark_delay_us * interval '1 microsecond'
                ELSE m.ready_time END AS ready_time,
            (m.state = 0 AND (m.expire_time IS NULL OR m.expire_time > c.now)) OR (m.state = 3 AND m.outcome IN (2, 4)) AS pending
        FROM queuebox.message m
        WHERE u.live_after IS NOT NULL AND m.queue_id = u.queue_id AND m.position > u.live_after
        ORDER BY m.position LIMIT $5::bigint
    ) s
) live
CROSS JOIN LATERAL (
    SELECT count(*) AS n, max(s.position) AS last, count(*) FILTER (WHERE s.finish_time > c.now - q.completed_retention) AS kept
    FROM (
        SELECT f.position, f.finish_time
        FROM queuebox.completed f
        WHERE u.completed_after IS NOT NULL AND f.queue_id = u.queue_id AND f.position > u.completed_after
        ORDER BY f.position LIMIT $5::bigint
    ) s
) done
CROSS JOIN LATERAL (
    SELECT count(*) AS n, max(s.position) AS last,
        count(*) FILTER (WHERE s.state = 4 AND (q.dead_retention = interval '0' OR s.finish_time > c.now - q.dead_retention)) AS kept
    FROM (
        SELECT d.position, d.state, d.finish_time
        FROM queuebox.dead d
        WHERE u.dead_after IS NOT NULL AND d.queue_id = u.queue_id AND d.position > u.dead_after
        ORDER BY d.position LIMIT $5::bigint
    ) s
) gone
