-- What keeps a live message from being claimed, read on the snapshot of message_get.sql, which
-- runs before it; the clock is read after both, so that nothing which they show lies ahead of it
-- by mistake. What blocks its key counts where it has no head. Ahead counts what a claim would
-- take first, up to 10,001, and skips what no claim would take; null where the message is not
-- ready itself. What the limits of the queue leave is read as limit_state.sql reads it. One row, whether or not the message is live.
-- Leans on message_pkey, message_head, message_ready, message_delayed, queue_pkey, ordering_key_pkey, dead_pkey,
-- claim_pace_pkey, claim_slot_pkey.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
live AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.place, m.state, m.key_id, m.priority, m.ready_time, m.lease_end, m.cancel_requested
    FROM queuebox.message m
    WHERE m.queue_id = $1::integer AND m.position = $2::bigint
)
SELECT clock.now, q.paused, l.place, l.state, l.cancel_requested, head.position, head.state, blocked.position, ahead.count,
    q.max_in_flight, q.max_claims_per_second, slots.leased, pace.rate, pace.full_ns
FROM clock
LEFT JOIN queuebox.queue q ON q.queue_id = $1
LEFT JOIN live l ON true
LEFT JOIN LATERAL (
    SELECT h.position, (CASE h.state WHEN 3 THEN 1 ELSE h.state END)::smallint AS state
    FROM queuebox.message h
    WHERE l.place = 2 AND h.key_id = l.key_id AND h.place < 2
    LIMIT 1
) head ON true
LEFT JOIN LATERAL (
    SELECT d.position
    FROM queuebox.ordering_key k
    CROSS JOIN LATERAL (
        SELECT d.position FROM queuebox.dead d
        WHERE d.queue_id = k.queue_id AND d.position = k.blocked_by AND d.state = 4
        LIMIT 1
    ) d
    WHERE l.place = 2 AND k.key_id = l.key_id AND q.ordering_mode = 2 AND k.blocked_by < l.position
    LIMIT 1
) blocked ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS count
    FROM (
        SELECT 1
        FROM (
            SELECT m.state, m.lease_end, m.cancel_requested, m.attempt, m.max_attempts, m.expire_time
            FROM queuebox.message m
            WHERE m.queue_id = $1 AND m.place = 0 AND m.priority > l.priority AND m.ready_time <= clock.now
            UNION ALL
            SELECT m.state, m.lease_end, m.cancel_requested, m.attempt, m.max_attempts, m.expire_time
            FROM queuebox.message m
            WHERE m.queue_id = $1 AND m.place = 0 AND m.priority = l.priority AND m.ready_time <= l.ready_time
              AND (m.ready_time < l.ready_time OR m.position < l.position)
            UNION ALL
            SELECT m.state, m.lease_end, m.cancel_requested, m.attempt, m.max_attempts, m.expire_time
            FROM queuebox.message m
            WHERE m.queue_id = $1 AND m.place = 1 AND m.ready_time <= clock.now
              AND (m.priority > l.priority OR (m.priority = l.priority
                AND (m.ready_time < l.ready_time OR (m.ready_time = l.ready_time AND m.position < l.position))))
        ) m
        WHERE (m.state = 0 OR (m.state = 1 AND m.lease_end <= clock.now))
          AND NOT m.cancel_requested AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
          AND (m.expire_time IS NULL OR m.expire_time > clock.now)
        LIMIT 10001
    ) taken
    WHERE l.place < 2 AND l.ready_time <= clock.now AND (l.state = 0 OR (l.state = 1 AND l.lease_end <= clock.now))
) ahead ON true
LEFT JOIN LATERAL (
    SELECT p.rate, p.full_ns, p.slot_from
    FROM queuebox.claim_pace p WHERE p.queue_id = q.queue_id ORDER BY p.seq DESC LIMIT 1
) pace ON true
LEFT JOIN LATERAL (
    SELECT count(DISTINCT s.position) AS leased
    FROM queuebox.claim_slot s
    CROSS JOIN LATERAL (
        SELECT 1 FROM queuebox.message m
        WHERE m.queue_id = s.queue_id AND m.position = s.position
          AND CASE m.state WHEN 3 THEN true WHEN 1 THEN m.lease_end > clock.now ELSE false END
        LIMIT 1
    ) m
    WHERE q.max_in_flight > 0 AND s.queue_id = q.queue_id AND s.seq >= coalesce(pace.slot_from, 0)
) slots ON true
