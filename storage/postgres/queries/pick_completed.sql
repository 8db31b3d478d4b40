-- As pick_dead.sql, for completed messages. Leans on completed_position.
WITH kept AS MATERIALIZED (
    SELECT q.completed_retention_us * interval '1 microsecond' AS completed_retention
    FROM queuebox.queue q WHERE q.queue_id = $1::integer
),
page AS MATERIALIZED (
    SELECT * FROM (
        SELECT c.position, 2::smallint AS state, 0::smallint AS dead_reason, c.ordering_key, c.reason_code, c.last_error, c.worker_id,
            c.create_time, c.finish_time, c.payload_bytes
        FROM queuebox.completed c
        WHERE c.queue_id = $1::integer AND c.position > $11::bigint AND cardinality($10::bigint[]) = 0
        ORDER BY c.position LIMIT $12::bigint
    ) walked
    UNION ALL
    SELECT * FROM (
        SELECT c.position, 2::smallint, 0::smallint, c.ordering_key, c.reason_code, c.last_error, c.worker_id,
            c.create_time, c.finish_time, c.payload_bytes
        FROM (SELECT DISTINCT u.position FROM unnest($10::bigint[]) AS u (position)) u
        JOIN queuebox.completed c ON c.queue_id = $1::integer AND c.position = u.position
        WHERE c.position > $11::bigint
        ORDER BY c.position LIMIT $12::bigint
    ) named
),
meant AS (
    SELECT a.position, a.payload_bytes, a.finish_time, a.ordering_key
    FROM kept k CROSS JOIN page a
    WHERE a.finish_time + k.completed_retention > clock_timestamp()
      AND {{filter}}
)
SELECT m.position, m.payload_bytes, m.finish_time, m.ordering_key, true, false
FROM (SELECT * FROM meant ORDER BY meant.position) m
UNION ALL
SELECT max(p.position), 0, NULL, NULL, false, false FROM page p HAVING count(*) >= $12::bigint
