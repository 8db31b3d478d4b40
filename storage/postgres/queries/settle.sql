-- Applies settlements. The row is locked first, by its id, state and token (the CASE keeps
-- the planner from starting anywhere but at the ids), then the lease that the lock returned
-- is judged (S2, S13). What is not returned is unknown, not lost. Of two items for one
-- message the first is applied. Outcomes: 1 completed, 2 retried, 3 dead, 4 released, 5
-- cancelled; actions: 1 complete, 2 retry, 3 dead-letter, 4 release.
-- Messages with ordering keys are settled between lock_keys.sql and promote.sql.
-- Leans on message_pkey, queue_pkey and ordering_key_pkey.
WITH locked AS MATERIALIZED (
    SELECT u.ord, u.token, u.action, u.delay_us, u.error, u.reason_code, u.result,
        m.queue_id, m.position, m.lease_end, m.attempt, m.max_attempts, m.expire_time, m.cancel_requested
    FROM unnest($1::integer[], $2::bigint[], $3::uuid[], $4::smallint[], $5::bigint[], $6::text[], $7::text[], $8::bytea[])
        WITH ORDINALITY AS u (queue_id, position, token, action, delay_us, error, reason_code, result, ord)
    JOIN queuebox.message m ON m.queue_id = u.queue_id AND m.position = u.position
        AND CASE WHEN m.token = u.token THEN m.state = 1 ELSE false END
    FOR UPDATE OF m SKIP LOCKED
),
-- One clock for all that is judged of a row, read when its lock is held.
timed AS MATERIALIZED (
    SELECT l.*, clock_timestamp() AS now FROM locked l
),
judged AS MATERIALIZED (
    SELECT DISTINCT ON (t.queue_id, t.position) t.*,
        CASE WHEN t.action = 1 THEN 1
            WHEN t.action = 3 THEN 3
            WHEN t.cancel_requested THEN 5
            WHEN t.expire_time <= t.now THEN 3
            WHEN t.action = 4 THEN 4
            WHEN t.max_attempts > 0 AND t.attempt >= t.max_attempts THEN 3
            ELSE 2 END AS outcome,
        CASE WHEN t.action = 1 THEN 0
            WHEN t.action = 3 THEN 1
            WHEN t.cancel_requested THEN 0
            WHEN t.expire_time <= t.now THEN 4
            WHEN t.action = 4 THEN 0
            WHEN t.max_attempts > 0 AND t.attempt >= t.max_attempts THEN 2
            ELSE 0 END AS dead_reason
    FROM timed t
    WHERE t.lease_end > t.now
    ORDER BY t.queue_id, t.position, t.ord
),
-- A retry without a delay takes the policy of its queue: min * multiplier ^ (attempt - 1),
-- never above max, of which the part jitter is drawn. The exponent is bounded: a million
-- attempts are no reason to overflow.
decided AS MATERIALIZED (
    SELECT j.*,
        CASE WHEN j.outcome IN (2, 4) THEN j.now + interval '1 microsecond' * coalesce(j.delay_us, (
            SELECT CASE WHEN q.retry_min_us <= 0 OR q.retry_multiplier <= 0 THEN 0
                ELSE round((1 - q.retry_jitter * random()) * least(q.retry_max_us,
                    q.retry_min_us * exp(least(600, greatest(-600, (j.attempt - 1) * ln(q.retry_multiplier)))))) END
            FROM queuebox.queue q WHERE q.queue_id = j.queue_id
        )) END AS available_time
    FROM judged j
),
returned AS (
    UPDATE queuebox.message m
    SET state = 0,
        place = CASE WHEN d.available_time > d.now THEN 1 ELSE 0 END,
        ready_time = d.available_time,
        attempt = m.attempt - CASE WHEN d.outcome = 4 THEN 1 ELSE 0 END,
        last_error = CASE WHEN d.action = 2 THEN d.error ELSE m.last_error END,
        reason_code = CASE WHEN d.action = 2 THEN d.reason_code ELSE m.reason_code END,
        token = NULL, lease_end = NULL, claim_time = NULL, lease_ms = NULL
    FROM decided d
    WHERE m.queue_id = d.queue_id AND m.position = d.position AND d.outcome IN (2, 4)
),
removed AS (
    DELETE FROM queuebox.message m
    USING decided d
    WHERE m.queue_id = d.queue_id AND m.position = d.position AND d.outcome IN (1, 3, 5)
    RETURNING d.action, d.outcome AS decided, d.dead_reason, d.now, d.error, d.reason_code AS code, d.result, m.*
),
completed AS (
    INSERT INTO queuebox.completed (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, worker_id, last_error, reason_code, content_type,
        ordering_key, idempotency_key, attributes, result, payload)
    SELECT r.queue_id, r.position, r.now, r.create_time, r.ready_time, r.expire_time, r.token,
        r.priority, r.attempt, r.max_attempts, r.payload_bytes, r.worker_id, r.last_error, r.reason_code, r.content_type,
        (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = r.key_id), r.idempotency_key, r.attributes,
        r.result, r.payload
    FROM removed r
    WHERE r.decided = 1
),
dead AS (
    INSERT INTO queuebox.dead (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, wire_bytes, state, action, dead_reason, worker_id, last_error,
        reason_code, content_type, ordering_key, idempotency_key, attributes, payload)
    SELECT r.queue_id, r.position, r.now, r.create_time, r.ready_time, r.expire_time, r.token,
        r.priority, r.attempt, r.max_attempts, r.payload_bytes, r.wire_bytes, CASE r.decided WHEN 5 THEN 5 ELSE 4 END,
        r.action, r.dead_reason, r.worker_id,
        CASE WHEN r.action = 4 THEN r.last_error ELSE r.error END,
        CASE WHEN r.action = 4 THEN r.reason_code ELSE r.code END,
        r.content_type, (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = r.key_id), r.idempotency_key,
        r.attributes, r.payload
    FROM removed r
    WHERE r.decided IN (3, 5)
),
-- A head that dies blocks its key, where the queue says so (O7); the caller has the lock of
-- the key. The later of two dead ones blocks: nothing behind it may go before it is gone.
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
    SELECT d.queue_id, d.position, d.token, d.now, d.available_time, d.action, d.outcome, d.dead_reason
    FROM decided d
    WHERE d.outcome <> 1
)
SELECT clock_timestamp(), d.ord, d.outcome, d.dead_reason, d.now, d.available_time
FROM (SELECT 1) one LEFT JOIN (
    SELECT ord, outcome, dead_reason, now, available_time FROM decided
    UNION ALL
    -- Locked, and the lease was over: lost for certain, which a look without the lock could not say.
    SELECT t.ord, NULL, NULL, NULL, NULL FROM timed t WHERE t.lease_end <= t.now
) d ON true
