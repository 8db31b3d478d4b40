-- Returns those of the dead messages $2 of a queue to the live ones that nobody else holds, each
-- with its position and its attempts. The first one is ready in $3 nanoseconds and each
-- following one $4 later. $5 attempts are allowed on top of those made; 0 takes the setting of
-- the queue, where 0 is no limit. An expire time that has passed is dropped, or the message
-- would die at once. A claim that ended by itself (action 0) leaves its token in the row, so
-- that its holder is told that his lease ran out; what was settled stands in the history.
-- A message with an ordering key moves where the transaction has the lock of its key, and is
-- parked; promote.sql makes it the head where it comes first (O7).
-- Leans on dead_pkey, queue_pkey, ordering_key_name_key; writes message_pkey and a place index a row.
WITH keys AS MATERIALIZED (
    SELECT string_to_array(current_setting('queuebox.keys', true), ',')::bigint[] AS ids
),
locked AS MATERIALIZED (
    SELECT d.queue_id, d.position
    FROM unnest($2::bigint[]) AS u (position)
    JOIN queuebox.dead d ON d.queue_id = $1::integer AND d.position = u.position AND d.state = 4
    WHERE d.ordering_key IS NULL
       OR (SELECT k.key_id FROM queuebox.ordering_key k WHERE k.queue_id = d.queue_id AND k.name = d.ordering_key)
           = ANY ((SELECT k.ids FROM keys k)::bigint[])
    FOR UPDATE OF d SKIP LOCKED
),
timed AS MATERIALIZED (
    SELECT l.queue_id, l.position, c.now,
        c.now + ($3::bigint + (row_number() OVER (ORDER BY l.position) - 1) * $4::bigint) / 1000 * interval '1 microsecond' AS ready_time
    FROM (SELECT clock_timestamp() AS now) c CROSS JOIN locked l
),
removed AS (
    DELETE FROM queuebox.dead d USING timed t
    WHERE d.queue_id = t.queue_id AND d.position = t.position
    RETURNING t.now, t.ready_time AS due, d.*
),
moved AS (
    INSERT INTO queuebox.message (queue_id, position, ready_time, create_time, expire_time, key_id, token, priority, attempt,
        max_attempts, payload_bytes, wire_bytes, place, worker_id, last_error, reason_code, content_type, idempotency_key,
        attributes, payload)
    SELECT r.queue_id, r.position, r.due, r.create_time, CASE WHEN r.expire_time > r.now THEN r.expire_time END,
        (SELECT k.key_id FROM queuebox.ordering_key k WHERE k.queue_id = r.queue_id AND k.name = r.ordering_key),
        CASE WHEN r.action = 0 THEN r.token END, r.priority, r.attempt,
        CASE WHEN $5::integer > 0 THEN least(r.attempt::bigint + $5::integer, 2147483647)
            WHEN q.max_attempts > 0 THEN least(r.attempt::bigint + q.max_attempts, 2147483647)
            ELSE 0 END,
        r.payload_bytes, r.wire_bytes,
        CASE WHEN r.ordering_key IS NOT NULL THEN 2 WHEN r.due > r.now THEN 1 ELSE 0 END,
        r.worker_id, r.last_error, r.reason_code, r.content_type, r.idempotency_key, r.attributes, r.payload
    FROM removed r JOIN queuebox.queue q ON q.queue_id = r.queue_id
    RETURNING 1
)
SELECT clock_timestamp(), (SELECT count(*) FROM moved)
