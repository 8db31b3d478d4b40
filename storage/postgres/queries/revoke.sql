-- Takes a claim away (S8 REVOKED). It waits for the row, as long as lock_timeout says, and judges
-- the claim under the lock: only a live lease can be revoked; a lease that is over, a message that
-- waits and a settling one (state 3, which a transaction of its worker has marked) stay as they
-- are. The message is ready now, its attempt given back where $3 says so, or it ends: 5 cancelled,
-- where that was asked for, 3 dead, where it has expired or no attempt is left. The history keeps
-- the token with action 5, which says lost and not settled. No row where the message is not among
-- the live ones; a null outcome where nobody holds it.
-- Leans on message_pkey, queue_pkey and ordering_key_pkey.
WITH locked AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.state, m.token, m.lease_end, m.expire_time, m.attempt, m.max_attempts,
        m.cancel_requested, m.worker_id
    FROM queuebox.message m
    WHERE m.queue_id = $1::integer AND m.position = $2::bigint
    FOR UPDATE
),
-- One clock for all that is judged of the row, read when its lock is held.
timed AS MATERIALIZED (
    SELECT l.*, clock_timestamp() AS now FROM locked l
),
decided AS MATERIALIZED (
    SELECT t.*,
        (CASE WHEN t.state <> 1 OR t.lease_end <= t.now THEN NULL
            WHEN t.cancel_requested THEN 5
            WHEN t.expire_time <= t.now THEN 3
            WHEN NOT $3::boolean AND t.max_attempts > 0 AND t.attempt >= t.max_attempts THEN 3
            ELSE 4 END)::smallint AS outcome,
        (CASE WHEN t.cancel_requested THEN 0
            WHEN t.expire_time <= t.now THEN 4
            WHEN NOT $3 AND t.max_attempts > 0 AND t.attempt >= t.max_attempts THEN 2
            ELSE 0 END)::smallint AS dead_reason
    FROM timed t
),
returned AS (
    UPDATE queuebox.message m
    SET state = 0, place = 0, ready_time = d.now,
        attempt = m.attempt - CASE WHEN $3 THEN 1 ELSE 0 END,
        token = NULL, lease_end = NULL, claim_time = NULL, lease_ms = NULL
    FROM decided d
    WHERE m.queue_id = d.queue_id AND m.position = d.position AND d.outcome = 4
),
removed AS (
    DELETE FROM queuebox.message m
    USING decided d
    WHERE m.queue_id = d.queue_id AND m.position = d.position AND d.outcome IN (3, 5)
    RETURNING d.outcome AS decided, d.dead_reason, d.now, m.*
),
dead AS (
    INSERT INTO queuebox.dead (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, wire_bytes, state, action, dead_reason, worker_id, last_error,
        reason_code, content_type, ordering_key, idempotency_key, attributes, payload)
    SELECT r.queue_id, r.position, r.now, r.create_time, r.ready_time, r.expire_time, r.token,
        r.priority, r.attempt - CASE WHEN $3 THEN 1 ELSE 0 END, r.max_attempts, r.payload_bytes, r.wire_bytes,
        CASE r.decided WHEN 5 THEN 5 ELSE 4 END, 5, r.dead_reason, r.worker_id, r.last_error,
        r.reason_code, r.content_type, (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = r.key_id),
        r.idempotency_key, r.attributes, r.payload
    FROM removed r
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
    SELECT d.queue_id, d.position, d.token, d.now, CASE WHEN d.outcome = 4 THEN d.now END, 5, d.outcome, d.dead_reason
    FROM decided d
    WHERE d.outcome IS NOT NULL
)
SELECT d.outcome, d.worker_id FROM decided d
