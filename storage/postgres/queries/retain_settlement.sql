-- Deletes settlement history that is older than its queue keeps it (S5): the retention of completed
-- messages, ten minutes at least. Otherwise as retain_completed.sql.
-- Leans on settlement_default_time and the position index of that table.
WITH lock AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7420742074207423) AS had),
old AS MATERIALIZED (
    SELECT o.*
    FROM lock CROSS JOIN queuebox.queue q
    CROSS JOIN LATERAL (
        SELECT s.queue_id, s.position, s.token
        FROM queuebox.settlement_default s
        WHERE s.queue_id = q.queue_id
          AND s.settle_time <= statement_timestamp() - greatest(q.completed_retention_us, 600000000) * interval '1 microsecond'
        ORDER BY s.settle_time
        LIMIT $1::bigint
        FOR UPDATE SKIP LOCKED
    ) o
    WHERE lock.had
    LIMIT $1::bigint
),
gone AS (
    DELETE FROM queuebox.settlement_default s USING old g
    WHERE s.queue_id = g.queue_id AND s.position = g.position AND s.token = g.token
    RETURNING 1
)
SELECT clock_timestamp(), lock.had, (SELECT count(*) FROM gone),
    (SELECT count(*) FROM old) >= $1::bigint
FROM lock
