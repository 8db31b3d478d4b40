-- Completes messages: what settle.sql does where every item is a completion, in as few steps
-- as it takes, since this is what nearly all calls ask for. The row is locked first, by its id,
-- state and token (the CASE keeps the planner from starting anywhere but at the ids), then the
-- lease that the lock returned is judged by a clock that was read when the lock was held (S2,
-- S13). What is not returned is unknown, not lost. No item stands here twice.
-- A row is deleted by its ctid, which cannot change while this statement holds the lock; where
-- somebody wrote it after this statement began, nothing is found there, nothing is returned,
-- and the slow lane comes back for it.
-- Messages with ordering keys are settled between lock_keys.sql and promote.sql.
-- Leans on message_pkey and ordering_key_pkey.
WITH locked AS MATERIALIZED (
    SELECT u.ord, m.tid, m.lease_end, clock_timestamp() AS now
    FROM (
        SELECT unnest($1::integer[]) AS queue_id, unnest($2::bigint[]) AS position, unnest($3::uuid[]) AS token,
            generate_subscripts($2::bigint[], 1) AS ord
    ) u
    CROSS JOIN LATERAL (
        SELECT m.ctid AS tid, m.lease_end
        FROM queuebox.message m
        WHERE m.queue_id = u.queue_id AND m.position = u.position
          AND CASE WHEN m.token = u.token THEN m.state = 1 ELSE false END
        FOR UPDATE SKIP LOCKED
    ) m
),
removed AS (
    DELETE FROM queuebox.message m
    USING locked l
    WHERE m.ctid = l.tid AND l.lease_end > l.now
    RETURNING l.ord, l.now, m.queue_id, m.position, m.create_time, m.ready_time, m.expire_time, m.token,
        m.priority, m.attempt, m.max_attempts, m.payload_bytes, m.worker_id, m.last_error, m.reason_code,
        m.content_type, m.key_id, m.idempotency_key, m.attributes, m.payload
),
completed AS (
    INSERT INTO queuebox.completed (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, worker_id, last_error, reason_code, content_type,
        ordering_key, idempotency_key, attributes, payload)
    SELECT r.queue_id, r.position, r.now, r.create_time, r.ready_time, r.expire_time, r.token,
        r.priority, r.attempt, r.max_attempts, r.payload_bytes, r.worker_id, r.last_error, r.reason_code, r.content_type,
        CASE WHEN r.key_id IS NULL THEN NULL ELSE (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = r.key_id) END,
        r.idempotency_key, r.attributes, r.payload
    FROM removed r
)
SELECT clock_timestamp(), r.ord, r.now
FROM (SELECT 1) one LEFT JOIN (
    SELECT ord, now FROM removed
    UNION ALL
    -- Locked, and the lease was over: lost for certain, which a look without the lock could not say.
    SELECT l.ord, NULL FROM locked l WHERE l.lease_end <= l.now
) r ON true
