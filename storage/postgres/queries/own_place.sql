-- Places rows of incoming that have no key of any kind, those that nobody else is at ($1, $2:
-- transaction and number). Positions rise in their order; a time that has passed while the
-- transaction was open means now. A queue that is not there makes max_attempts null, which
-- the table refuses.
-- Leans on incoming_order and queue_pkey; writes message_pkey and one place index a row.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
held AS MATERIALIZED (
    SELECT i.xid, i.seq
    FROM unnest($1::text[], $2::bigint[]) AS u (xid, seq)
    JOIN queuebox.incoming i ON i.xid = u.xid::xid8 AND i.seq = u.seq AND i.refused IS NULL
    FOR UPDATE OF i SKIP LOCKED
),
gone AS (
    DELETE FROM queuebox.incoming i USING held h
    WHERE i.xid = h.xid AND i.seq = h.seq AND i.refused IS NULL
    RETURNING i.*
),
placed AS (
    INSERT INTO queuebox.message (queue_id, position, ready_time, create_time, expire_time, priority,
        max_attempts, payload_bytes, wire_bytes, place, content_type, attributes, payload)
    SELECT g.queue_id, nextval('queuebox.message_position'), g.ready_time, g.create_time, g.expire_time, g.priority,
        (SELECT CASE WHEN g.max_attempts > 0 THEN g.max_attempts ELSE q.max_attempts END
            FROM queuebox.queue q WHERE q.queue_id = g.queue_id),
        octet_length(g.payload), g.wire_bytes, CASE WHEN g.ready_time > g.now THEN 1 ELSE 0 END,
        g.content_type, g.attributes, g.payload
    FROM (
        SELECT o.*, clock.now, greatest(clock.now, coalesce(o.available_time, o.create_time + o.delay_us * interval '1 microsecond')) AS ready_time
        FROM gone o CROSS JOIN clock
        ORDER BY o.xid, o.seq
    ) g
    RETURNING queue_id, ready_time
)
SELECT clock.now, p.queue_id, p.ready_time, p.placed
FROM clock LEFT JOIN (
    SELECT queue_id, min(ready_time) AS ready_time, count(*) AS placed FROM placed GROUP BY queue_id
) p ON true
