-- As purge_dead.sql, for completed messages. Their finish times $3 lead to their hours.
-- Leans on completed_position, idempotency_key_pkey, settlement_position.
WITH locked AS MATERIALIZED (
    SELECT c.queue_id, c.position, c.finish_time, c.create_time, c.idempotency_key
    FROM unnest($2::bigint[], $3::timestamptz[]) AS u (position, finish_time)
    JOIN queuebox.completed c ON c.queue_id = $1::integer AND c.position = u.position AND c.finish_time = u.finish_time
    FOR UPDATE OF c SKIP LOCKED
),
{{forget}}
gone AS (
    DELETE FROM queuebox.completed c USING going g
    WHERE c.queue_id = g.queue_id AND c.position = g.position AND c.finish_time = g.finish_time
    RETURNING 1
)
SELECT clock_timestamp(), (SELECT count(*) FROM gone)
