-- Completes messages: what settle.sql does where every item is a completion, in as few steps
-- as it takes, since this is what nearly all calls ask for. The rows are locked first, by their
-- ids, states and tokens (the CASE keeps the planner from starting anywhere but at the ids),
-- then the leases that the locks returned are judged by one clock, which was read when all
-- locks were held (S2, S13). No position stands here twice.
-- Rows are copied and deleted by their ctids, which cannot change while this statement holds
-- the locks; all of them in one scan each, not one scan for each of them. Where somebody wrote a
-- row after this statement began, neither finds anything, and the slow lane comes back for it.
-- One row is returned. Only where not all of them were completed, it lists those that were, and
-- those that were locked and whose lease was over: these are lost for certain, which a look
-- without the lock could not say. What is in neither list is unknown.
-- Messages with ordering keys are completed after lock_keys.sql, by this and complete_ordered.sql.
-- Leans on message_pkey and ordering_key_pkey.
WITH locked AS MATERIALIZED (
    SELECT u.position, m.tid, m.lease_end
    FROM (
        SELECT unnest($1::integer[]) AS queue_id, unnest($2::bigint[]) AS position, unnest($3::uuid[]) AS token
    ) u
    CROSS JOIN LATERAL (
        SELECT m.ctid AS tid, m.lease_end
        FROM queuebox.message m
        WHERE m.queue_id = u.queue_id AND m.position = u.position
          AND CASE WHEN m.token = u.token THEN m.state = 1 ELSE false END
        FOR UPDATE SKIP LOCKED
    ) m
),
-- The count is what takes all locks before the clock is read.
judged AS MATERIALIZED (
    SELECT c.now, ARRAY(SELECT l.tid FROM locked l WHERE l.lease_end > c.now) AS tids
    FROM (SELECT clock_timestamp() AS now FROM (SELECT count(*) FROM locked) every OFFSET 0) c
),
removed AS (
    DELETE FROM queuebox.message m
    WHERE m.ctid = ANY ((SELECT j.tids FROM judged j)::tid[])
    RETURNING m.position
),
completed AS (
    INSERT INTO queuebox.completed (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, worker_id, last_error, reason_code, content_type,
        ordering_key, idempotency_key, attributes, payload)
    SELECT m.queue_id, m.position, (SELECT j.now FROM judged j), m.create_time, m.ready_time, m.expire_time, m.token,
        m.priority, m.attempt, m.max_attempts, m.payload_bytes, m.worker_id, m.last_error, m.reason_code, m.content_type,
        CASE WHEN m.key_id IS NULL THEN NULL ELSE (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = m.key_id) END,
        m.idempotency_key, m.attributes, m.payload
    FROM queuebox.message m
    WHERE m.ctid = ANY ((SELECT j.tids FROM judged j)::tid[])
)
SELECT clock_timestamp(), (SELECT j.now FROM judged j), count(*),
    CASE WHEN count(*) < cardinality($2) THEN array_agg(r.position) END,
    CASE WHEN count(*) < cardinality($2)
        THEN ARRAY(SELECT l.position FROM locked l WHERE l.lease_end <= (SELECT j.now FROM judged j)) END
FROM removed r
