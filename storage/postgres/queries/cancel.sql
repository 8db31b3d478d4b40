-- Cancels a message that is not finished (S14). It waits for the row, as long as lock_timeout
-- says. Nobody holds it: it moves to the dead ones, with the token of its last holder and no
-- action. Somebody does: the row says so from now on, and stays his. A settling message (state
-- 3) has its end already. No row where the message is not among the live ones. The state is
-- told as it is now; null for a settling one, of which the caller asks message_get.
-- Leans on message_pkey; the request is HOT.
WITH locked AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.state, m.lease_end, m.cancel_requested
    FROM queuebox.message m
    WHERE m.queue_id = $1::integer AND m.position = $2::bigint
    FOR UPDATE
),
-- One clock for all that is judged of the row, read when its lock is held.
timed AS MATERIALIZED (
    SELECT l.*, clock_timestamp() AS now FROM locked l
),
decided AS MATERIALIZED (
    SELECT t.*, CASE WHEN t.state = 0 OR (t.state = 1 AND t.lease_end <= t.now) THEN 5 WHEN t.state = 1 THEN 1 END AS becomes
    FROM timed t
),
asked AS (
    UPDATE queuebox.message m
    SET cancel_requested = true
    FROM decided d
    WHERE m.queue_id = d.queue_id AND m.position = d.position AND d.becomes = 1 AND NOT d.cancel_requested
),
removed AS (
    DELETE FROM queuebox.message m
    USING decided d
    WHERE m.queue_id = d.queue_id AND m.position = d.position AND d.becomes = 5
    RETURNING d.now, m.*
),
dead AS (
    INSERT INTO queuebox.dead (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, wire_bytes, state, action, dead_reason, worker_id, last_error,
        reason_code, content_type, ordering_key, idempotency_key, attributes, payload)
    SELECT r.queue_id, r.position, r.now, r.create_time, r.ready_time, r.expire_time, r.token,
        r.priority, r.attempt, r.max_attempts, r.payload_bytes, r.wire_bytes, 5, 0, 0, r.worker_id, r.last_error,
        r.reason_code, r.content_type, (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = r.key_id),
        r.idempotency_key, r.attributes, r.payload
    FROM removed r
)
SELECT d.now, d.becomes::smallint FROM decided d
