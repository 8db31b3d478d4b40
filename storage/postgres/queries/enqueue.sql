-- Inserts messages without any key, all or none, positions in the order of the items. The
-- arrays that nobody needs are empty, which costs nothing: past its end one gives null. $1 are
-- the queues that the items name, each once, and $3 which of them an item means. A queue that
-- is not there makes max_attempts null, which the table refuses.
-- Leans on queue_pkey; writes message_pkey and one place index a row.
WITH shared AS MATERIALIZED (
    SELECT clock_timestamp() AS now, ARRAY(
        SELECT (SELECT q.max_attempts FROM queuebox.queue q WHERE q.queue_id = u.queue_id)
        FROM unnest($1::integer[]) WITH ORDINALITY AS u (queue_id, ord)
        ORDER BY u.ord
    ) AS attempts
),
item AS (
    SELECT u.*, now.now, now.attempts[coalesce(u.queue, 1)] AS attempts,
        CASE WHEN u.available_time IS NULL AND u.delay_us IS NULL THEN now.now
            ELSE greatest(now.now, coalesce(u.available_time, now.now + u.delay_us * interval '1 microsecond')) END AS ready_time
    FROM shared now, (
        SELECT unnest($2::bytea[]) AS payload, unnest($3::integer[]) AS queue, unnest($4::text[]) AS content_type,
            unnest($5::text[]) AS attributes, unnest($6::integer[]) AS priority, unnest($7::bigint[]) AS delay_us,
            unnest($8::timestamptz[]) AS available_time, unnest($9::integer[]) AS max_attempts,
            unnest($10::timestamptz[]) AS expire_time, unnest($11::integer[]) AS wire_bytes
    ) u
)
INSERT INTO queuebox.message (queue_id, position, ready_time, create_time, expire_time, priority,
    max_attempts, payload_bytes, wire_bytes, place, content_type, attributes, payload)
SELECT ($1::integer[])[coalesce(i.queue, 1)], nextval('queuebox.message_position'), i.ready_time, i.now, i.expire_time,
    coalesce(i.priority, 0), CASE WHEN i.max_attempts > 0 AND i.attempts IS NOT NULL THEN i.max_attempts ELSE i.attempts END,
    length(i.payload), i.wire_bytes, CASE WHEN i.ready_time > i.now THEN 1 ELSE 0 END,
    coalesce(i.content_type, ''), i.attributes::jsonb, i.payload
FROM item i
RETURNING position, ready_time, create_time
