-- Counts a queue at one instant. It reads all its live messages and the finished ones that
-- are kept: the caller asks rarely. A marked message counts as what its mark says.
-- Leans on message_pkey, completed_position, dead_pkey.
WITH q AS MATERIALIZED (
    SELECT clock_timestamp() AS now, q.completed_retention_us * interval '1 microsecond' AS completed_retention,
        q.dead_retention_us * interval '1 microsecond' AS dead_retention
    FROM queuebox.queue q WHERE q.queue_id = $1::integer
)
SELECT q.now, live.ready, live.delayed, live.blocked, live.leased, live.over,
    live.completed + (SELECT count(*) FROM queuebox.completed c
        WHERE c.queue_id = $1::integer AND c.finish_time > q.now - q.completed_retention),
    live.dead + (SELECT count(*) FROM queuebox.dead d
        WHERE d.queue_id = $1::integer AND d.state = 4
          AND (q.dead_retention = interval '0' OR d.finish_time > q.now - q.dead_retention)),
    live.oldest
FROM q CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE s.pending AND s.place <> 2 AND s.ready_time <= q.now) AS ready,
        count(*) FILTER (WHERE s.pending AND s.place <> 2 AND s.ready_time > q.now) AS delayed,
        count(*) FILTER (WHERE s.pending AND s.place = 2) AS blocked,
        count(*) FILTER (WHERE s.state = 1 AND s.lease_end > q.now) AS leased,
        count(*) FILTER (WHERE s.state = 1 AND s.lease_end <= q.now) AS over,
        count(*) FILTER (WHERE s.state = 3 AND s.outcome = 1) AS completed,
        count(*) FILTER (WHERE s.state = 3 AND s.outcome = 3) AS dead,
        min(s.ready_time) FILTER (WHERE s.pending AND s.place <> 2 AND s.ready_time <= q.now) AS oldest
    FROM (
        SELECT m.place, m.state, m.outcome, m.lease_end,
            CASE WHEN m.state = 3 AND m.outcome = 2 THEN m.settle_time + m.mark_delay_us * interval '1 microsecond'
                ELSE m.ready_time END AS ready_time,
            m.state = 0 OR (m.state = 3 AND m.outcome IN (2, 4)) AS pending
        FROM queuebox.message m WHERE m.queue_id = $1::integer
    ) s
) live
