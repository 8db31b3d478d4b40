-- As retain_dead.sql, for completed messages that lie in no hour.
-- Leans on completed_default_finish, the position index of that table, idempotency_key_pkey.
WITH lock AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7420742074207423) AS had),
old AS MATERIALIZED (
    SELECT o.*
    FROM lock CROSS JOIN queuebox.queue q
    CROSS JOIN LATERAL (
        SELECT c.queue_id, c.position, c.token, c.idempotency_key, c.payload_bytes
        FROM queuebox.completed_default c
        WHERE c.queue_id = q.queue_id
          AND c.finish_time <= statement_timestamp() - q.completed_retention_us * interval '1 microsecond'
        ORDER BY c.finish_time
        LIMIT $1::bigint
        FOR UPDATE SKIP LOCKED
    ) o
    WHERE lock.had
    LIMIT $1::bigint
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
    DELETE FROM queuebox.completed_default c USING going g
    WHERE c.queue_id = g.queue_id AND c.position = g.position AND c.token = g.token
    RETURNING 1
)
SELECT clock_timestamp(), lock.had, (SELECT count(*) FROM gone),
    (SELECT count(*) FROM old) >= $1::bigint OR (SELECT count(*) FROM cut) < (SELECT count(*) FROM old)
FROM lock
