-- As retain_completed.sql, for one queue ($3) in one hour ($4 to $5) whose every row has passed
-- the retention of that queue; the caller has seen to that. Only that partition is looked at.
-- Leans on completed_position, idempotency_key_pkey.
WITH lock AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7420742074207423) AS had),
old AS MATERIALIZED (
    SELECT c.queue_id, c.position, c.token, c.idempotency_key, c.payload_bytes
    FROM queuebox.completed c
    WHERE c.queue_id = $3::integer AND c.finish_time >= $4::timestamptz AND c.finish_time < $5::timestamptz
      AND (SELECT had FROM lock)
    LIMIT $1::bigint
    FOR UPDATE OF c SKIP LOCKED
),
cut AS MATERIALIZED (
    SELECT m.* FROM (
        SELECT o.*, row_number() OVER w AS rank, sum(o.payload_bytes) OVER w AS bytes
        FROM old o
        WINDOW w AS (ORDER BY o.queue_id, o.position ROWS UNBOUNDED PRECEDING)
    ) m
    WHERE m.rank = 1 OR m.bytes <= $2::bigint
),
-- A key that somebody else holds keeps its row until the next time.
keys AS MATERIALIZED (
    SELECT k.queue_id, k.key, k.position
    FROM cut c
    JOIN queuebox.idempotency_key k ON k.queue_id = c.queue_id AND k.key = c.idempotency_key AND k.position = c.position
    FOR UPDATE OF k SKIP LOCKED
),
going AS MATERIALIZED (
    SELECT c.* FROM cut c
    WHERE c.idempotency_key IS NULL
       OR EXISTS (SELECT 1 FROM keys k WHERE k.queue_id = c.queue_id AND k.position = c.position)
       OR (SELECT k.position FROM queuebox.idempotency_key k
           WHERE k.queue_id = c.queue_id AND k.key = c.idempotency_key) IS DISTINCT FROM c.position
),
freed AS (
    DELETE FROM queuebox.idempotency_key k USING keys
    WHERE k.queue_id = keys.queue_id AND k.key = keys.key
),
gone AS (
    DELETE FROM queuebox.completed c USING going g
    WHERE c.queue_id = g.queue_id AND c.position = g.position AND c.token = g.token
      AND c.finish_time >= $4::timestamptz AND c.finish_time < $5::timestamptz
    RETURNING 1
)
SELECT clock_timestamp(), lock.had, (SELECT count(*) FROM gone),
    (SELECT count(*) FROM old) >= $1::bigint OR (SELECT count(*) FROM cut) < (SELECT count(*) FROM old)
FROM lock
