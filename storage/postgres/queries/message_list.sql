-- Reads a page of the messages of a queue, newest position first, below position $11 (the
-- first page passes the highest number). One snapshot, and positions never change: a message
-- that stays as it is stands on exactly one page. A marked message shows what its mark says.
-- Leans on message_pkey, completed_position, dead_pkey, each walked backwards.
SELECT s.queue_id, s.position, s.idempotency_key, CASE WHEN $13::boolean THEN s.payload END, s.payload_bytes, s.content_type, s.attributes,
    s.ordering_key, s.priority, s.state, s.attempt, s.max_attempts, s.create_time, s.ready_time, s.expire_time,
    s.last_error, s.dead_reason, s.reason_code, s.worker_id, s.lease_end, s.finish_time, s.result
FROM (
    SELECT * FROM (
        SELECT a.* FROM (
            SELECT m.queue_id, m.position, m.idempotency_key, m.payload, m.payload_bytes, m.content_type, m.attributes::text AS attributes,
            (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = m.key_id) AS ordering_key, m.priority,
            (CASE WHEN m.state = 3 THEN CASE m.outcome WHEN 1 THEN 2 WHEN 3 THEN 4 WHEN 5 THEN 5 ELSE 0 END ELSE m.state END)::smallint AS state,
            m.attempt, m.max_attempts, m.create_time,
            CASE WHEN m.state = 3 AND m.outcome = 2 THEN m.settle_time + m.mark_delay_us * interval '1 microsecond' ELSE m.ready_time END AS ready_time,
            m.expire_time,
            CASE WHEN m.state = 3 AND m.mark_error IS NOT NULL THEN m.mark_error ELSE m.last_error END AS last_error,
            (CASE WHEN m.state = 3 THEN coalesce(m.mark_dead_reason, 0) ELSE 0 END)::smallint AS dead_reason,
            CASE WHEN m.state = 3 AND m.mark_reason_code IS NOT NULL THEN m.mark_reason_code ELSE m.reason_code END AS reason_code,
            m.worker_id, CASE WHEN m.state = 1 THEN m.lease_end END AS lease_end,
            CASE WHEN m.state = 3 AND m.outcome IN (1, 3, 5) THEN m.settle_time END AS finish_time, m.mark_result AS result
            FROM queuebox.message m
            WHERE m.queue_id = $1::integer AND m.position < $11::bigint
        ) a
        WHERE {{filter}}
        ORDER BY a.position DESC LIMIT $12::bigint
    ) live
    UNION ALL
    SELECT * FROM (
        SELECT a.* FROM (
            SELECT c.queue_id, c.position, c.idempotency_key, c.payload, c.payload_bytes, c.content_type, c.attributes::text,
            c.ordering_key, c.priority, 2::smallint AS state, c.attempt, c.max_attempts, c.create_time, c.ready_time, c.expire_time,
            c.last_error, 0::smallint AS dead_reason, c.reason_code, c.worker_id, NULL::timestamptz, c.finish_time, c.result
            FROM queuebox.completed c JOIN queuebox.queue q ON q.queue_id = c.queue_id
            WHERE c.queue_id = $1::integer AND c.position < $11::bigint
              AND c.finish_time + q.completed_retention_us * interval '1 microsecond' > clock_timestamp()
        ) a
        WHERE {{filter}}
        ORDER BY a.position DESC LIMIT $12::bigint
    ) done
    UNION ALL
    SELECT * FROM (
        SELECT a.* FROM (
            SELECT d.queue_id, d.position, d.idempotency_key, d.payload, d.payload_bytes, d.content_type, d.attributes::text,
            d.ordering_key, d.priority, d.state, d.attempt, d.max_attempts, d.create_time, d.ready_time, d.expire_time,
            d.last_error, d.dead_reason, d.reason_code, d.worker_id, NULL::timestamptz, d.finish_time, NULL::bytea
            FROM queuebox.dead d JOIN queuebox.queue q ON q.queue_id = d.queue_id
            WHERE d.queue_id = $1::integer AND d.position < $11::bigint
              AND CASE WHEN d.state = 5 THEN d.finish_time + q.completed_retention_us * interval '1 microsecond' > clock_timestamp()
                  ELSE q.dead_retention_us = 0 OR d.finish_time + q.dead_retention_us * interval '1 microsecond' > clock_timestamp() END
        ) a
        WHERE {{filter}}
        ORDER BY a.position DESC LIMIT $12::bigint
    ) gone
) s
ORDER BY s.position DESC
LIMIT $12::bigint
