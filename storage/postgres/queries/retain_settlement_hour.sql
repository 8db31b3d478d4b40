-- As retain_settlement.sql, for one queue ($2) in one hour ($3 to $4) whose every row is older than that
-- queue keeps them; the caller has seen to that. Only that partition is looked at.
-- Leans on settlement_position.
WITH lock AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7420742074207423) AS had),
old AS MATERIALIZED (
    SELECT s.queue_id, s.position, s.token
    FROM queuebox.settlement s
    WHERE s.queue_id = $2::integer AND s.settle_time >= $3::timestamptz AND s.settle_time < $4::timestamptz
      AND (SELECT had FROM lock)
    LIMIT $1::bigint
    FOR UPDATE OF s SKIP LOCKED
),
gone AS (
    DELETE FROM queuebox.settlement s USING old g
    WHERE s.queue_id = g.queue_id AND s.position = g.position AND s.token = g.token
      AND s.settle_time >= $3::timestamptz AND s.settle_time < $4::timestamptz
    RETURNING 1
)
SELECT clock_timestamp(), lock.had, (SELECT count(*) FROM gone),
    (SELECT count(*) FROM old) >= $1::bigint
FROM lock
