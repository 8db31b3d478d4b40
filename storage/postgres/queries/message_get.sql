-- Reads one message, live or finished and kept, at one snapshot, so that a message on its way
-- between the tables is never missed. A marked one shows what its mark says.
-- Leans on message_pkey, completed_position, dead_pkey.
SELECT a.queue_id, a.position, a.idempotency_key, CASE WHEN $3::boolean THEN a.payload END, a.payload_bytes, a.content_type, a.attributes,
    a.ordering_key, a.priority, a.state, a.attempt, a.max_attempts, a.create_time, a.ready_time, a.expire_time,
    a.last_error, a.dead_reason, a.reason_code, a.worker_id, a.lease_end, a.finish_time, a.result
FROM (
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
    WHERE m.queue_id = $1::integer AND m.position = $2::bigint
    UNION ALL
    SELECT c.queue_id, c.position, c.idempotency_key, c.payload, c.payload_bytes, c.content_type, c.attributes::text,
        c.ordering_key, c.priority, 2::smallint, c.attempt, c.max_attempts, c.create_time, c.ready_time, c.expire_time,
        c.last_error, 0::smallint, c.reason_code, c.worker_id, NULL::timestamptz, c.finish_time, c.result
    FROM queuebox.completed c JOIN queuebox.queue q ON q.queue_id = c.queue_id
    WHERE c.queue_id = $1::integer AND c.position = $2::bigint
      AND c.finish_time + q.completed_retention_us * interval '1 microsecond' > clock_timestamp()
    UNION ALL
    SELECT d.queue_id, d.position, d.idempotency_key, d.payload, d.payload_bytes, d.content_type, d.attributes::text,
        d.ordering_key, d.priority, d.state, d.attempt, d.max_attempts, d.create_time, d.ready_time, d.expire_time,
        d.last_error, d.dead_reason, d.reason_code, d.worker_id, NULL::timestamptz, d.finish_time, NULL::bytea
    FROM queuebox.dead d JOIN queuebox.queue q ON q.queue_id = d.queue_id
    WHERE d.queue_id = $1::integer AND d.position = $2::bigint
      AND CASE WHEN d.state = 5 THEN d.finish_time + q.completed_retention_us * interval '1 microsecond' > clock_timestamp()
          ELSE q.dead_retention_us = 0 OR d.finish_time + q.dead_retention_us * interval '1 microsecond' > clock_timestamp() END
) a
LIMIT 1
