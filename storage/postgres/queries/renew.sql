-- Sets lease ends anew, each from the clock after its row was locked (R1, S13); what is not
-- returned is unknown, not lost. HOT: nothing that it writes is indexed.
-- Leans on message_pkey.
WITH locked AS MATERIALIZED (
    SELECT u.ord, u.max_us, u.lease_us, m.queue_id, m.position, m.lease_end, m.lease_ms
    FROM unnest($1::integer[], $2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[])
        WITH ORDINALITY AS u (queue_id, position, token, lease_us, max_us, ord)
    JOIN queuebox.message m ON m.queue_id = u.queue_id AND m.position = u.position
        AND CASE WHEN m.token = u.token THEN m.state = 1 ELSE false END
    FOR UPDATE OF m SKIP LOCKED
),
-- One clock for the lease of a row, read when its lock is held.
timed AS MATERIALIZED (
    SELECT l.*, clock_timestamp() AS now FROM locked l
),
wanted AS MATERIALIZED (
    SELECT l.ord, l.queue_id, l.position,
        CASE WHEN l.lease_us > 0 THEN l.lease_us
            WHEN l.max_us > 0 THEN least(l.lease_ms::bigint * 1000, l.max_us)
            ELSE l.lease_ms::bigint * 1000 END AS lease_us
    FROM timed l
    WHERE l.lease_end > l.now
),
renewed AS (
    UPDATE queuebox.message m
    SET lease_end = clock_timestamp() + w.lease_us * interval '1 microsecond',
        lease_ms = (w.lease_us + 999) / 1000
    FROM wanted w
    WHERE m.queue_id = w.queue_id AND m.position = w.position
    RETURNING w.ord, m.lease_end, m.cancel_requested
)
SELECT clock_timestamp(), r.ord, r.lease_end, r.cancel_requested
FROM (SELECT 1) one LEFT JOIN (
    SELECT ord, lease_end, cancel_requested FROM renewed
    UNION ALL
    -- Locked, and the lease was over: lost for certain, which a look without the lock could not say.
    SELECT t.ord, NULL, NULL FROM timed t WHERE t.lease_end <= t.now
) r ON true
