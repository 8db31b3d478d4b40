-- Deletes dead and cancelled messages that have passed the retention of their queue, the oldest
-- first, with the keys that still name them (D6, E5): at most $1 rows and about $2 bytes. One
-- replica at a time, by a lock that the transaction holds; rows that somebody else holds are
-- left. Leans on dead_finish, dead_pkey, idempotency_key_pkey.
WITH lock AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7420742074207423) AS had),
old AS MATERIALIZED (
    SELECT o.*
    FROM lock CROSS JOIN queuebox.queue q
    CROSS JOIN LATERAL (VALUES (4::smallint, q.dead_retention_us), (5::smallint, q.completed_retention_us)) AS kind (state, keep_us)
    CROSS JOIN LATERAL (
        SELECT d.queue_id, d.position, d.idempotency_key, d.payload_bytes
        FROM queuebox.dead d
        WHERE d.queue_id = q.queue_id AND d.state = kind.state
          AND d.finish_time <= statement_timestamp() - kind.keep_us * interval '1 microsecond'
        ORDER BY d.finish_time
        LIMIT $1::bigint
        FOR UPDATE SKIP LOCKED
    ) o
    WHERE lock.had AND (kind.state = 5 OR kind.keep_us > 0)
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
    DELETE FROM queuebox.dead d USING going g
    WHERE d.queue_id = g.queue_id AND d.position = g.position
    RETURNING 1
)
SELECT clock_timestamp(), lock.had, (SELECT count(*) FROM gone),
    (SELECT count(*) FROM old) >= $1::bigint OR (SELECT count(*) FROM cut) < (SELECT count(*) FROM old)
FROM lock
