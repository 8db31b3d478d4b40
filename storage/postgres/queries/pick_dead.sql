-- Looks at the next $12 dead and cancelled messages of a queue after position $11, or at those
-- that the filter names, in their order, and tells which are meant. The last row tells the last
-- position looked at, where there may be more. It locks nothing; who moves a message looks again.
-- It tells too whether a dead message blocks its ordering key.
-- Leans on dead_pkey and ordering_key_name_key.
WITH kept AS MATERIALIZED (
    SELECT q.completed_retention_us * interval '1 microsecond' AS completed_retention,
        q.dead_retention_us * interval '1 microsecond' AS dead_retention
    FROM queuebox.queue q WHERE q.queue_id = $1::integer
),
page AS MATERIALIZED (
    SELECT * FROM (
        SELECT d.position, d.state, d.dead_reason, d.ordering_key, d.reason_code, d.last_error, d.worker_id,
            d.create_time, d.finish_time, d.payload_bytes
        FROM queuebox.dead d
        WHERE d.queue_id = $1::integer AND d.position > $11::bigint AND cardinality($10::bigint[]) = 0
        ORDER BY d.position LIMIT $12::bigint
    ) walked
    UNION ALL
    SELECT * FROM (
        SELECT d.position, d.state, d.dead_reason, d.ordering_key, d.reason_code, d.last_error, d.worker_id,
            d.create_time, d.finish_time, d.payload_bytes
        FROM (SELECT DISTINCT u.position FROM unnest($10::bigint[]) AS u (position)) u
        JOIN queuebox.dead d ON d.queue_id = $1::integer AND d.position = u.position
        WHERE d.position > $11::bigint
        ORDER BY d.position LIMIT $12::bigint
    ) named
),
meant AS (
    SELECT a.position, a.payload_bytes, a.finish_time, a.ordering_key
    FROM kept k CROSS JOIN page a
    WHERE CASE WHEN a.state = 5 THEN a.finish_time + k.completed_retention > clock_timestamp()
        ELSE k.dead_retention = interval '0' OR a.finish_time + k.dead_retention > clock_timestamp() END
      AND {{filter}}
)
SELECT m.position, m.payload_bytes, m.finish_time, m.ordering_key, true,
    EXISTS (SELECT 1 FROM queuebox.ordering_key k
        WHERE k.queue_id = $1::integer AND k.name = m.ordering_key AND k.blocked_by = m.position)
FROM (SELECT * FROM meant ORDER BY meant.position) m
UNION ALL
SELECT max(p.position), 0, NULL, NULL, false, false FROM page p HAVING count(*) >= $12::bigint
