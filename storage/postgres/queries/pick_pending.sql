-- As pick_dead.sql, for live messages that nobody holds: neither processing, whatever its lease
-- says, nor settling. Leans on message_pkey and ordering_key_pkey.
WITH page AS MATERIALIZED (
    SELECT * FROM (
        SELECT m.position, m.state, 0::smallint AS dead_reason, m.key_id, m.reason_code, m.last_error, m.worker_id,
            m.create_time, m.payload_bytes
        FROM queuebox.message m
        WHERE m.queue_id = $1::integer AND m.position > $11::bigint AND cardinality($10::bigint[]) = 0
        ORDER BY m.position LIMIT $12::bigint
    ) walked
    UNION ALL
    SELECT * FROM (
        SELECT m.position, m.state, 0::smallint, m.key_id, m.reason_code, m.last_error, m.worker_id,
            m.create_time, m.payload_bytes
        FROM (SELECT DISTINCT u.position FROM unnest($10::bigint[]) AS u (position)) u
        JOIN queuebox.message m ON m.queue_id = $1::integer AND m.position = u.position
        WHERE m.position > $11::bigint
        ORDER BY m.position LIMIT $12::bigint
    ) named
),
meant AS (
    SELECT a.position, a.payload_bytes, a.ordering_key
    FROM (
        SELECT p.*, (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = p.key_id) AS ordering_key
        FROM page p WHERE p.state = 0
    ) a
    WHERE {{filter}}
)
SELECT m.position, m.payload_bytes, NULL::timestamptz, m.ordering_key, true, false
FROM (SELECT * FROM meant ORDER BY meant.position) m
UNION ALL
SELECT max(p.position), 0, NULL, NULL, false, false FROM page p HAVING count(*) >= $12::bigint
