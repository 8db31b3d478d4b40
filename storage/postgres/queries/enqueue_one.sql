-- enqueue.sql for one message: no arrays, and a shorter plan, whose start is what such a
-- statement mostly costs. Returns nothing where there is no queue.
-- Leans on queue_pkey; writes message_pkey and one place index.
INSERT INTO queuebox.message (queue_id, position, ready_time, create_time, expire_time, priority,
    max_attempts, payload_bytes, wire_bytes, place, content_type, attributes, payload)
SELECT i.queue_id, nextval('queuebox.message_position'), i.ready_time, i.now, $9::timestamptz, $5::integer,
    i.max_attempts, length($2::bytea), $10::integer, CASE WHEN i.ready_time > i.now THEN 1 ELSE 0 END,
    $3::text, $4::text::jsonb, $2::bytea
FROM (
    SELECT q.queue_id, c.now, CASE WHEN $8::integer > 0 THEN $8 ELSE q.max_attempts END AS max_attempts,
        CASE WHEN $7::timestamptz IS NULL AND $6::bigint IS NULL THEN c.now
            ELSE greatest(c.now, coalesce($7, c.now + $6 * interval '1 microsecond')) END AS ready_time
    FROM (SELECT clock_timestamp() AS now OFFSET 0) c, queuebox.queue q
    WHERE q.queue_id = $1::integer
    OFFSET 0
) i
RETURNING position, ready_time, create_time
