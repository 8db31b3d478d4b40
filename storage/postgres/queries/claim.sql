-- Leases up to $2 ready messages of a queue, in the order priority, ready time, position,
-- and moves a bounded number of delayed ones that became ready into the ready set for
-- the next claim. Writes nothing where nothing is ready (C11); never waits for a row; cuts
-- by bytes before it leases (C13); takes no more than it returns (C19: both row sources
-- are materialized). The ready set is walked in segments ($10 to $13): a range of
-- priorities from its start, or one priority from a hint on.
-- Leans on message_ready and message_delayed.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
due AS MATERIALIZED (
    SELECT m.position, row_number() OVER (ORDER BY m.ready_time, m.position) AS rank, count(*) OVER () AS rows
    FROM (
        SELECT d.position, d.ready_time
        FROM queuebox.message d
        WHERE d.queue_id = $1 AND d.place = 1 AND d.ready_time <= statement_timestamp()
          AND NOT (SELECT q.paused FROM queuebox.queue q WHERE q.queue_id = $1)
        ORDER BY d.ready_time, d.position
        LIMIT 200
        FOR UPDATE SKIP LOCKED
    ) m
),
-- Behind hints a row with its old ready time would be hidden, so there it becomes ready
-- now: the order among those moved together is kept by the microsecond.
promoted AS (
    UPDATE queuebox.message m
    SET place = 0,
        ready_time = CASE WHEN $9 THEN greatest(m.ready_time,
            statement_timestamp() - (due.rows - due.rank) * interval '1 microsecond') ELSE m.ready_time END
    FROM due
    WHERE m.queue_id = $1 AND m.position = due.position AND m.place = 1
    RETURNING 1
),
picked AS MATERIALIZED (
    SELECT r.position, r.priority, r.ready_time, r.payload_bytes, r.wire_bytes
    FROM (
        SELECT * FROM unnest($10::integer[], $11::integer[], $12::timestamptz[], $13::boolean[])
            WITH ORDINALITY AS u (highest, lowest, ready_from, hinted, ord)
        ORDER BY u.ord
    ) seg
    CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT m.position, m.priority, m.ready_time, m.payload_bytes, m.wire_bytes
            FROM queuebox.message m
            WHERE NOT seg.hinted
              AND m.queue_id = $1 AND m.place = 0 AND m.ready_time <= statement_timestamp()
              AND m.priority <= seg.highest AND m.priority >= seg.lowest
              AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= clock_timestamp()))
              AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
              AND (m.expire_time IS NULL OR m.expire_time > clock_timestamp())
              AND NOT (SELECT q.paused FROM queuebox.queue q WHERE q.queue_id = $1)
            ORDER BY m.priority DESC, m.ready_time, m.position
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        ) whole
        UNION ALL
        SELECT * FROM (
            SELECT m.position, m.priority, m.ready_time, m.payload_bytes, m.wire_bytes
            FROM queuebox.message m
            WHERE seg.hinted
              AND m.queue_id = $1 AND m.place = 0 AND m.ready_time <= statement_timestamp()
              AND m.priority = seg.highest AND m.ready_time >= seg.ready_from
              AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= clock_timestamp()))
              AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
              AND (m.expire_time IS NULL OR m.expire_time > clock_timestamp())
              AND NOT (SELECT q.paused FROM queuebox.queue q WHERE q.queue_id = $1)
            ORDER BY m.ready_time, m.position
            LIMIT $2
            FOR UPDATE SKIP LOCKED
        ) above
    ) r
    LIMIT $2
),
measured AS (
    SELECT p.position,
        row_number() OVER w AS rank,
        sum(p.wire_bytes) OVER w AS wire_bytes,
        sum(p.payload_bytes) OVER w AS payload_bytes
    FROM picked p
    WINDOW w AS (ORDER BY p.priority DESC, p.ready_time, p.position ROWS UNBOUNDED PRECEDING)
),
taken AS (
    SELECT s.position, s.rank, ($5::integer[])[s.rank] AS call
    FROM measured s
    WHERE s.rank = 1 OR (($3 = 0 OR s.wire_bytes <= $3) AND ($4 = 0 OR s.payload_bytes <= $4))
),
leased AS (
    UPDATE queuebox.message m
    SET state = 1,
        token = gen_random_uuid(),
        lease_end = clock_timestamp() + ($6::bigint[])[t.call] * interval '1 microsecond',
        lease_ms = (($6::bigint[])[t.call] + 999) / 1000,
        claim_time = clock_timestamp(),
        worker_id = ($7::text[])[t.call],
        attempt = m.attempt + 1
    FROM taken t
    WHERE m.queue_id = $1 AND m.position = t.position
    RETURNING t.call, t.rank, m.*
),
-- The insert is the guard against two running calls of one claim id (C14).
calls AS (
    INSERT INTO queuebox.claim_call (queue_id, claim_id, claim_time, worker_id, positions, tokens)
    SELECT $1, ($8::uuid[])[l.call], clock_timestamp(), ($7::text[])[l.call],
        array_agg(l.position ORDER BY l.rank), array_agg(l.token ORDER BY l.rank)
    FROM leased l
    WHERE ($8::uuid[])[l.call] IS NOT NULL
    GROUP BY l.call
)
SELECT clock.now, (SELECT count(*) FROM promoted), (SELECT count(*) FROM picked),
    (SELECT d.ready_time FROM queuebox.message d
        WHERE d.queue_id = $1 AND d.place = 1 AND d.ready_time > statement_timestamp()
        ORDER BY d.ready_time, d.position LIMIT 1),
    l.call, l.rank, l.token, l.position, l.idempotency_key, l.payload, l.payload_bytes, l.content_type, l.attributes,
    l.priority, l.attempt, l.max_attempts, l.create_time, l.ready_time, l.expire_time, l.last_error,
    l.reason_code, l.worker_id, l.lease_end,
    (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = l.key_id)
FROM clock LEFT JOIN leased l ON true
