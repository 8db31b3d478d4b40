-- Makes messages of rows of incoming that this transaction has taken ($1, $2), at positions
-- drawn before ($3). $4 tells what their idempotency keys decided: 1 a message, 2 a duplicate,
-- which vanishes, 3 a reused key, which becomes a dead message that says so (E3). The ordering
-- keys are locked since an earlier statement and put right by promote.sql after this one; a
-- message is parked as in enqueue_ordered.sql. A dead one that would have been the head of its
-- key blocks it, where the queue says so (O7). A key that went away, or is not the one that is
-- locked, makes the place null, a queue that is not there makes max_attempts null, and the table refuses either.
-- Leans on incoming_order, queue_pkey, ordering_key_name_key, message_head, message_parked, dead_pkey.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
locked AS MATERIALIZED (
    SELECT string_to_array(current_setting('queuebox.keys', true), ',')::bigint[] AS ids
),
gone AS (
    DELETE FROM queuebox.incoming i
    USING unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[]) AS u (xid, seq, position, verdict)
    WHERE i.xid = u.xid::xid8 AND i.seq = u.seq AND i.refused IS NULL
    RETURNING i.*, u.position, u.verdict
),
item AS MATERIALIZED (
    SELECT g.*, clock.now, k.key_id, k.tid,
        greatest(clock.now, coalesce(g.available_time, g.create_time + g.delay_us * interval '1 microsecond')) AS ready_time,
        k.taken OR row_number() OVER (PARTITION BY k.key_id ORDER BY g.position) > 1 AS parked,
        (SELECT CASE WHEN g.max_attempts > 0 THEN g.max_attempts ELSE q.max_attempts END
            FROM queuebox.queue q WHERE q.queue_id = g.queue_id) AS attempts
    FROM gone g CROSS JOIN clock
    LEFT JOIN LATERAL (
        SELECT k.ctid AS tid, k.key_id,
            EXISTS (SELECT 1 FROM queuebox.message m WHERE m.key_id = k.key_id AND m.place < 2)
            OR EXISTS (SELECT 1 FROM queuebox.message m WHERE m.key_id = k.key_id AND m.place = 2)
            OR CASE WHEN k.blocked_by IS NULL THEN false ELSE coalesce(
                (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = k.queue_id)
                AND (SELECT d.state = 4 FROM queuebox.dead d WHERE d.queue_id = k.queue_id AND d.position = k.blocked_by),
                false) END AS taken
        FROM queuebox.ordering_key k
        WHERE k.queue_id = g.queue_id AND k.name = g.ordering_key COLLATE "C"
          AND k.key_id = ANY ((SELECT l.ids FROM locked l)::bigint[])
        LIMIT 1
    ) k ON g.ordering_key IS NOT NULL
    WHERE g.verdict <> 2
    ORDER BY g.position
),
placed AS (
    INSERT INTO queuebox.message (queue_id, position, key_id, ready_time, create_time, expire_time, priority,
        max_attempts, payload_bytes, wire_bytes, place, content_type, attributes, payload, idempotency_key)
    SELECT i.queue_id, i.position, i.key_id, i.ready_time, i.create_time, i.expire_time, i.priority,
        i.attempts, octet_length(i.payload), i.wire_bytes,
        CASE WHEN i.ordering_key IS NOT NULL AND i.key_id IS NULL THEN NULL
            WHEN i.ordering_key IS NOT NULL AND i.parked THEN 2
            WHEN i.ready_time > i.now THEN 1 ELSE 0 END,
        i.content_type, i.attributes, i.payload, i.idempotency_key
    FROM item i
    WHERE i.verdict = 1
    RETURNING queue_id, ready_time
),
dead AS (
    INSERT INTO queuebox.dead (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, wire_bytes, state, action, dead_reason, worker_id, last_error,
        reason_code, content_type, ordering_key, idempotency_key, attributes, payload)
    SELECT i.queue_id, i.position, i.now, i.create_time, i.ready_time, i.expire_time, NULL,
        i.priority, 0, i.attempts, octet_length(i.payload), i.wire_bytes, 4, 0, 5, NULL,
        'the idempotency key belongs to another message, of other content', 'IDEMPOTENCY_KEY_REUSED', i.content_type,
        i.ordering_key, i.idempotency_key, i.attributes, i.payload
    FROM item i
    WHERE i.verdict = 3
),
blocked AS (
    UPDATE queuebox.ordering_key k
    SET blocked_by = greatest(k.blocked_by, i.position)
    FROM item i
    WHERE k.ctid = i.tid AND i.verdict = 3 AND NOT i.parked
      AND (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = i.queue_id)
)
SELECT clock.now, (SELECT count(*) FROM gone), p.queue_id, p.ready_time
FROM clock LEFT JOIN (
    SELECT queue_id, min(ready_time) AS ready_time FROM placed GROUP BY queue_id
) p ON true
