-- Inserts messages without idempotency keys, all or none, positions in the order of the
-- items. A queue that is not there makes max_attempts null, which the table refuses.
-- Leans on queue_pkey; writes message_pkey and one place index a row.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
item AS (
    SELECT u.*, clock.now,
        greatest(clock.now, coalesce(u.available_time, clock.now + u.delay_us * interval '1 microsecond')) AS ready_time
    FROM clock, unnest($1::integer[], $2::bytea[], $3::text[], $4::text[], $5::integer[], $6::bigint[],
        $7::timestamptz[], $8::integer[], $9::timestamptz[], $10::integer[])
        WITH ORDINALITY AS u (queue_id, payload, content_type, attributes, priority, delay_us,
        available_time, max_attempts, expire_time, wire_bytes, ord)
    ORDER BY u.ord
)
INSERT INTO queuebox.message (queue_id, position, ready_time, create_time, expire_time, priority,
    max_attempts, payload_bytes, wire_bytes, place, content_type, attributes, payload)
SELECT i.queue_id, nextval('queuebox.message_position'), i.ready_time, i.now, i.expire_time, i.priority,
    (SELECT CASE WHEN i.max_attempts > 0 THEN i.max_attempts ELSE q.max_attempts END
        FROM queuebox.queue q WHERE q.queue_id = i.queue_id),
    length(i.payload), i.wire_bytes, CASE WHEN i.ready_time > i.now THEN 1 ELSE 0 END,
    i.content_type, i.attributes::jsonb, i.payload
FROM item i
RETURNING position, ready_time, create_time
