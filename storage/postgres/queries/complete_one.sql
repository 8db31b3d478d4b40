-- complete.sql for one message without an ordering key, as a caller alone sends it: no arrays, no join,
-- and a plan of half as many nodes, whose start is what such a statement mostly costs. The
-- clock is read outside the SELECT that locks, whose own list is computed before the lock.
-- Returns nothing where the row was not locked, and a position only where the message was
-- completed; where the lease was over, it is lost for certain, else unknown.
-- Leans on message_pkey.
WITH locked AS MATERIALIZED (
    SELECT h.tid, h.lease_end, clock_timestamp() AS now
    FROM (
        SELECT m.ctid AS tid, m.lease_end
        FROM queuebox.message m
        WHERE m.queue_id = $1::integer AND m.position = $2::bigint
          AND CASE WHEN m.token = $3::uuid THEN m.state = 1 ELSE false END
        FOR UPDATE SKIP LOCKED
    ) h
),
removed AS (
    DELETE FROM queuebox.message m
    WHERE m.ctid = (SELECT l.tid FROM locked l WHERE l.lease_end > l.now)
    RETURNING m.position
),
completed AS (
    INSERT INTO queuebox.completed (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, worker_id, last_error, reason_code, content_type,
        idempotency_key, attributes, payload)
    SELECT m.queue_id, m.position, (SELECT l.now FROM locked l), m.create_time, m.ready_time, m.expire_time, m.token,
        m.priority, m.attempt, m.max_attempts, m.payload_bytes, m.worker_id, m.last_error, m.reason_code, m.content_type,
        m.idempotency_key, m.attributes, m.payload
    FROM queuebox.message m
    WHERE m.ctid = (SELECT l.tid FROM locked l WHERE l.lease_end > l.now)
)
SELECT clock_timestamp(), l.now, l.lease_end > l.now, (SELECT r.position FROM removed r)
FROM locked l
