-- Inserts messages of which some have ordering keys, whose locks the transaction has since an
-- earlier statement; otherwise as enqueue.sql, or, where positions ($12) are given, as
-- enqueue_keyed.sql. Positions are drawn here, under the locks, so that within a key they rise
-- as the transactions commit (O5); those of messages with a key are odd. A message is parked
-- behind another one of its key, in the table or before it in this call, and behind a dead one
-- that blocks the key (O7); else it is the head at once. A key that went away makes the place
-- null, which the table refuses; so does one that came back meanwhile, since another row of its
-- name is not the one that is locked, and messages of others may stand in it at later positions.
-- Leans on queue_pkey, ordering_key_name_key, message_head, message_parked and dead_pkey.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
locked AS MATERIALIZED (
    SELECT string_to_array(current_setting('queuebox.keys', true), ',')::bigint[] AS ids
),
item AS MATERIALIZED (
    SELECT u.*, clock.now, k.key_id,
        greatest(clock.now, coalesce(u.available_time, clock.now + u.delay_us * interval '1 microsecond')) AS ready_time,
        k.taken OR row_number() OVER (PARTITION BY k.key_id ORDER BY u.ord) > 1 AS parked
    FROM clock
    CROSS JOIN unnest($1::integer[], $2::bytea[], $3::text[], $4::text[], $5::integer[], $6::bigint[],
        $7::timestamptz[], $8::integer[], $9::timestamptz[], $10::integer[], $11::text[], $12::bigint[], $13::text[])
        WITH ORDINALITY AS u (queue_id, payload, content_type, attributes, priority, delay_us,
        available_time, max_attempts, expire_time, wire_bytes, ordering_key, position, idempotency_key, ord)
    LEFT JOIN LATERAL (
        SELECT k.key_id,
            EXISTS (SELECT 1 FROM queuebox.message m WHERE m.key_id = k.key_id AND m.place < 2)
            OR EXISTS (SELECT 1 FROM queuebox.message m WHERE m.key_id = k.key_id AND m.place = 2)
            OR CASE WHEN k.blocked_by IS NULL THEN false ELSE coalesce(
                (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = k.queue_id)
                AND (SELECT d.state = 4 FROM queuebox.dead d WHERE d.queue_id = k.queue_id AND d.position = k.blocked_by),
                false) END AS taken
        FROM queuebox.ordering_key k
        WHERE k.queue_id = u.queue_id AND k.name = u.ordering_key COLLATE "C"
          AND k.key_id = ANY ((SELECT l.ids FROM locked l)::bigint[])
        LIMIT 1
    ) k ON u.ordering_key <> ''
    ORDER BY u.ord
)
INSERT INTO queuebox.message (queue_id, position, key_id, ready_time, create_time, expire_time, priority,
    max_attempts, payload_bytes, wire_bytes, place, content_type, attributes, payload, idempotency_key)
SELECT i.queue_id,
    coalesce(i.position, nextval('queuebox.message_position') + CASE WHEN i.ordering_key = '' THEN 0 ELSE 1 END),
    i.key_id, i.ready_time, i.now, i.expire_time, i.priority,
    (SELECT CASE WHEN i.max_attempts > 0 THEN i.max_attempts ELSE q.max_attempts END
        FROM queuebox.queue q WHERE q.queue_id = i.queue_id),
    length(i.payload), i.wire_bytes,
    CASE WHEN i.ordering_key <> '' AND i.key_id IS NULL THEN NULL
        WHEN i.ordering_key <> '' AND i.parked THEN 2
        WHEN i.ready_time > i.now THEN 1 ELSE 0 END,
    i.content_type, i.attributes::jsonb, i.payload, nullif(i.idempotency_key, '')
FROM item i
RETURNING position, ready_time, create_time
