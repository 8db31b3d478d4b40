-- What the hints of a claim would hide (W7): for each named priority ($2) its first claimable
-- message before a place ($3, $4), in time that grows with what lies there; and of the
-- priorities without one, which stand in gaps between them ($5 to $6), the largest that the
-- ready set has, each with its first claimable message; and the first of
-- what is delayed before $8. Reads only. What is claimable is what
-- claim.sql takes. Leans on message_ready and message_delayed.
WITH RECURSIVE present (lowest, priority) AS (
    SELECT g.lowest, (SELECT m.priority FROM queuebox.message m
        WHERE m.queue_id = $1::integer AND m.place = 0 AND m.priority <= g.highest AND m.priority >= g.lowest
        ORDER BY m.priority DESC LIMIT 1)
    FROM unnest($5::integer[], $6::integer[]) AS g (highest, lowest)
    UNION ALL
    SELECT p.lowest, (SELECT m.priority FROM queuebox.message m
        WHERE m.queue_id = $1 AND m.place = 0 AND m.priority < p.priority AND m.priority >= p.lowest
        ORDER BY m.priority DESC LIMIT 1)
    FROM present p WHERE p.priority IS NOT NULL
),
asked AS (
    SELECT u.priority, u.ready_time, u.position
    FROM unnest($2::integer[], $3::timestamptz[], $4::bigint[]) AS u (priority, ready_time, position)
    UNION ALL
    SELECT n.priority, 'infinity', 0
    FROM (SELECT p.priority FROM present p WHERE p.priority IS NOT NULL LIMIT $7) n
)
SELECT statement_timestamp(), a.priority, f.ready_time, f.position,
    (SELECT d.ready_time FROM queuebox.message d
        WHERE d.queue_id = $1 AND d.place = 1 AND d.ready_time < $8::timestamptz AND d.state = 0
        ORDER BY d.ready_time, d.position LIMIT 1)
FROM (SELECT 1) one
LEFT JOIN asked a ON true
LEFT JOIN LATERAL (
    SELECT m.ready_time, m.position
    FROM queuebox.message m
    WHERE m.queue_id = $1 AND m.place = 0 AND m.priority = a.priority
      AND (m.ready_time, m.position) < (a.ready_time, a.position) AND m.ready_time <= statement_timestamp()
      AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= clock_timestamp()))
      AND NOT m.cancel_requested AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
      AND (m.expire_time IS NULL OR m.expire_time > clock_timestamp())
    ORDER BY m.ready_time, m.position
    LIMIT 1
) f ON true
ORDER BY a.priority DESC
