-- Finishes marks that this transaction has taken ($1 to $4), with the same end as settle.sql:
-- the mark has decided everything. A message whose row somebody else has locked keeps its
-- mark for the next time, and so does one with an ordering key (its position is odd) whose lock the
-- transaction does not have; a mark whose message is not there, or no longer settling, goes.
-- The times are those of the mark, but nothing becomes claimable in the past: a claim may
-- start its scan behind it.
-- Leans on message_pkey and marked_order.
WITH taken AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::bigint[]) AS u (xid, seq, queue_id, position)
),
keys AS MATERIALIZED (
    SELECT string_to_array(current_setting('queuebox.keys', true), ',')::bigint[] AS ids
),
locked AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.state, m.outcome AS decided, m.mark_action AS action, m.settle_time AS settled,
        m.token AS settler, coalesce(m.mark_dead_reason, 0) AS reason,
        m.settle_time + m.mark_delay_us * interval '1 microsecond' AS available_time,
        m.mark_error AS new_error, m.mark_reason_code AS new_code, m.mark_result AS new_result
    FROM (SELECT DISTINCT t.queue_id, t.position FROM taken t ORDER BY t.queue_id, t.position) t
    JOIN queuebox.message m ON m.queue_id = t.queue_id AND m.position = t.position
    WHERE CASE WHEN t.position & 1 = 1 THEN m.key_id = ANY ((SELECT k.ids FROM keys k)::bigint[]) ELSE true END
    FOR UPDATE OF m SKIP LOCKED
),
timed AS MATERIALIZED (
    SELECT l.*, clock_timestamp() AS now FROM locked l WHERE l.state = 3
),
returned AS (
    UPDATE queuebox.message m
    SET state = 0,
        place = CASE WHEN d.available_time > d.now THEN 1 ELSE 0 END,
        ready_time = greatest(d.available_time, d.now),
        last_error = d.new_error, reason_code = d.new_code,
        token = NULL, lease_end = NULL, claim_time = NULL, lease_ms = NULL,
        outcome = NULL, mark_action = NULL, mark_dead_reason = NULL, settle_time = NULL, mark_delay_us = NULL,
        mark_error = NULL, mark_reason_code = NULL, mark_result = NULL
    FROM timed d
    WHERE m.queue_id = d.queue_id AND m.position = d.position AND d.decided = 2
    RETURNING m.queue_id, m.position, m.ready_time
),
removed AS (
    DELETE FROM queuebox.message m
    USING timed d
    WHERE m.queue_id = d.queue_id AND m.position = d.position AND d.decided IN (1, 3, 5)
    RETURNING d.decided, d.action, d.reason, d.settled, d.new_error, d.new_code, d.new_result, m.*
),
completed AS (
    INSERT INTO queuebox.completed (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, worker_id, last_error, reason_code, content_type,
        ordering_key, idempotency_key, attributes, result, payload)
    SELECT r.queue_id, r.position, r.settled, r.create_time, r.ready_time, r.expire_time, r.token,
        r.priority, r.attempt, r.max_attempts, r.payload_bytes, r.worker_id, r.last_error, r.reason_code, r.content_type,
        (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = r.key_id), r.idempotency_key, r.attributes,
        r.new_result, r.payload
    FROM removed r
    WHERE r.decided = 1
),
dead AS (
    INSERT INTO queuebox.dead (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, wire_bytes, state, action, dead_reason, worker_id, last_error,
        reason_code, content_type, ordering_key, idempotency_key, attributes, payload)
    SELECT r.queue_id, r.position, r.settled, r.create_time, r.ready_time, r.expire_time, r.token,
        r.priority, r.attempt, r.max_attempts, r.payload_bytes, r.wire_bytes, CASE r.decided WHEN 5 THEN 5 ELSE 4 END,
        r.action, r.reason, r.worker_id, r.new_error, r.new_code,
        r.content_type, (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = r.key_id), r.idempotency_key,
        r.attributes, r.payload
    FROM removed r
    WHERE r.decided IN (3, 5)
),
-- As in settle.sql: a head that dies blocks its key, where the queue says so (O7).
blocking AS MATERIALIZED (
    SELECT k.tid, r.position
    FROM removed r CROSS JOIN LATERAL (
        SELECT k.ctid AS tid FROM queuebox.ordering_key k WHERE k.key_id = r.key_id LIMIT 1
    ) k
    WHERE r.decided = 3 AND r.key_id IS NOT NULL AND r.place < 2
      AND (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = r.queue_id)
),
blocked AS (
    UPDATE queuebox.ordering_key k
    SET blocked_by = greatest(k.blocked_by, b.position)
    FROM blocking b
    WHERE k.ctid = b.tid
),
history AS (
    INSERT INTO queuebox.settlement (queue_id, position, token, settle_time, available_time, action, outcome, dead_reason)
    SELECT d.queue_id, d.position, d.settler, d.settled, d.available_time, d.action, d.decided, d.reason
    FROM timed d
    WHERE d.decided <> 1
),
cleared AS (
    DELETE FROM queuebox.marked k USING taken t
    WHERE k.xid = t.xid::xid8 AND k.seq = t.seq
      AND (EXISTS (SELECT 1 FROM locked l WHERE l.queue_id = t.queue_id AND l.position = t.position)
        OR (SELECT m.position FROM queuebox.message m WHERE m.queue_id = t.queue_id AND m.position = t.position) IS NULL)
    RETURNING 1
)
SELECT clock_timestamp(), (SELECT count(*) FROM cleared), d.queue_id, d.position, d.decided,
    (SELECT r.ready_time FROM returned r WHERE r.queue_id = d.queue_id AND r.position = d.position)
FROM (SELECT 1) one LEFT JOIN timed d ON true
