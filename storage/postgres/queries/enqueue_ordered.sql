-- Inserts messages of which some have ordering keys, whose locks the transaction has since an
-- earlier statement (take_names.sql, lock_completion.sql); otherwise as enqueue.sql. $12 says which
-- of the locked keys a message has, counted from 1, and 0 for none; $13 that another message of
-- this call stands before it in its key. Positions are drawn here, under the locks, so that within a
-- key they rise as the transactions commit (O5), or were ($14) drawn before; those of messages with a
-- key are odd. A message is parked behind another one of its key, and behind a dead one that blocks
-- the key (O7); else it is the head at once. A key that went away makes the place null, which the
-- table refuses.
-- What is asked of a key stands in subqueries that give a value: of an EXISTS the planner may make a
-- hash of all messages.
-- Leans on queue_pkey, message_head, message_parked, ordering_key_pkey and dead_pkey.
WITH shared AS MATERIALIZED (
    SELECT clock_timestamp() AS now, ARRAY(
        SELECT (SELECT q.max_attempts FROM queuebox.queue q WHERE q.queue_id = u.queue_id)
        FROM unnest($1::integer[]) WITH ORDINALITY AS u (queue_id, ord)
        ORDER BY u.ord
    ) AS attempts,
    string_to_array(current_setting('queuebox.keys', true), ',')::bigint[] AS keys,
    current_setting('queuebox.blocked', true) IS DISTINCT FROM 'false' AS blocked
),
item AS (
    SELECT u.*, now.now, now.attempts[coalesce(u.queue, 1)] AS attempts, nullif(now.keys[u.key], 0) AS key_id, now.blocked,
        CASE WHEN u.available_time IS NULL AND u.delay_us IS NULL THEN now.now
            ELSE greatest(now.now, coalesce(u.available_time, now.now + u.delay_us * interval '1 microsecond')) END AS ready_time
    FROM shared now, (
        SELECT unnest($2::bytea[]) AS payload, unnest($3::integer[]) AS queue, unnest($4::text[]) AS content_type,
            unnest($5::text[]) AS attributes, unnest($6::integer[]) AS priority, unnest($7::bigint[]) AS delay_us,
            unnest($8::timestamptz[]) AS available_time, unnest($9::integer[]) AS max_attempts,
            unnest($10::timestamptz[]) AS expire_time, unnest($11::integer[]) AS wire_bytes, unnest($12::integer[]) AS key,
            unnest($13::boolean[]) AS behind, unnest($14::bigint[]) AS position, unnest($15::text[]) AS idempotency_key
    ) u
)
INSERT INTO queuebox.message (queue_id, position, key_id, ready_time, create_time, expire_time, priority,
    max_attempts, payload_bytes, wire_bytes, place, content_type, attributes, payload, idempotency_key)
SELECT ($1::integer[])[coalesce(i.queue, 1)],
    coalesce(i.position, nextval('queuebox.message_position') + CASE WHEN i.key > 0 THEN 1 ELSE 0 END),
    i.key_id, i.ready_time, i.now, i.expire_time, coalesce(i.priority, 0),
    CASE WHEN i.max_attempts > 0 AND i.attempts IS NOT NULL THEN i.max_attempts ELSE i.attempts END,
    length(i.payload), i.wire_bytes,
    CASE WHEN i.key > 0 AND i.key_id IS NULL THEN NULL
        WHEN i.key > 0 AND (coalesce(i.behind, false)
            OR (SELECT m.place FROM queuebox.message m WHERE m.key_id = i.key_id AND m.place < 2 LIMIT 1) IS NOT NULL
            OR (SELECT m.place FROM queuebox.message m WHERE m.key_id = i.key_id AND m.place = 2 LIMIT 1) IS NOT NULL
            OR (CASE WHEN i.blocked THEN (
                SELECT (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = k.queue_id)
                    AND (SELECT d.state = 4 FROM queuebox.dead d WHERE d.queue_id = k.queue_id AND d.position = k.blocked_by)
                FROM queuebox.ordering_key k
                WHERE k.key_id = i.key_id AND k.blocked_by IS NOT NULL
            ) END) IS TRUE) THEN 2
        WHEN i.ready_time > i.now THEN 1 ELSE 0 END,
    coalesce(i.content_type, ''), i.attributes::jsonb, i.payload, nullif(i.idempotency_key, '')
FROM item i
RETURNING position, ready_time, create_time
