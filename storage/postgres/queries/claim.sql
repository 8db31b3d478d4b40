-- Leases up to $2 ready messages of a queue, in the order priority, ready time, position.
-- Delayed messages that became ready stand in line like the others, a bounded number a
-- claim; those of them that are not taken move into the ready set. Writes nothing where
-- nothing is ready (C11); never waits for a row; cuts by bytes before it leases (C13); leases
-- no more than it returns (C19: what a LIMIT picks is materialized). The ready set is walked in
-- segments ($9 to $12): a range of priorities from its start, or one priority from a hint on,
-- and what is delayed from $15 on. claim_ready.sql goes before it.
-- The tokens ($14) come from the caller, one for each row that may be taken, since the database
-- takes longer to draw one than for all the rest of a row. A queue that has a limit is closed and says so: claim_limited.sql is its way.
-- Leans on message_ready and message_delayed.
WITH gate AS MATERIALIZED (
    SELECT clock_timestamp() AS now, NOT q.paused AND NOT q.limited AS open, q.limited
    FROM (SELECT 1) one
    LEFT JOIN (SELECT g.paused, g.max_in_flight > 0 OR g.max_claims_per_second > 0 AS limited
        FROM queuebox.queue g WHERE g.queue_id = $1::integer) q ON true
),
due AS MATERIALIZED (
    SELECT m.ctid AS tid, m.position, m.priority, m.ready_time, m.payload_bytes, m.wire_bytes,
        NOT m.cancel_requested AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
        AND (m.expire_time IS NULL OR m.expire_time > clock_timestamp()) AS fit
    FROM queuebox.message m
    WHERE m.queue_id = $1::integer AND m.place = 1 AND m.ready_time <= statement_timestamp() AND m.ready_time >= $15::timestamptz
      AND m.state = 0
      AND (SELECT g.open FROM gate g)
    ORDER BY m.ready_time, m.position
    LIMIT 200
    FOR UPDATE SKIP LOCKED
),
picked AS MATERIALIZED (
    SELECT r.tid, r.position, r.priority, r.ready_time, r.payload_bytes, r.wire_bytes
    FROM (
        SELECT unnest($10::integer[]) AS highest, unnest($11::integer[]) AS lowest,
            unnest($12::timestamptz[]) AS ready_from, unnest($9::bigint[]) AS position_from
    ) seg
    CROSS JOIN LATERAL (
        SELECT m.ctid AS tid, m.position, m.priority, m.ready_time, m.payload_bytes, m.wire_bytes
        FROM queuebox.message m
        {{claimable}}
    ) r
    LIMIT $2
),
line AS (
    SELECT c.tid, c.fit, c.due,
        row_number() OVER w AS rank,
        sum(c.wire_bytes) OVER w AS wire_sum,
        sum(c.payload_bytes) OVER w AS payload_sum
    FROM (
        SELECT p.tid, p.position, p.priority, p.ready_time, p.payload_bytes, p.wire_bytes, true AS fit, false AS due FROM picked p
        UNION ALL
        SELECT d.tid, d.position, d.priority, d.ready_time, d.payload_bytes, d.wire_bytes, d.fit, true FROM due d
    ) c
    WINDOW w AS (ORDER BY c.fit DESC, c.priority DESC, c.ready_time, c.position ROWS UNBOUNDED PRECEDING)
),
-- call is null for rows that are not taken.
taken AS (
    SELECT l.tid, l.rank, l.due,
        CASE WHEN l.fit AND l.rank <= $2
            AND (l.rank = 1 OR (($3::bigint = 0 OR l.wire_sum <= $3) AND ($4::bigint = 0 OR l.payload_sum <= $4)))
            THEN ($5::integer[])[l.rank] END AS call
    FROM line l
),
-- Leases what is taken, and moves to the ready set what was delayed and is not. It finds its
-- rows by ctid, which cannot change while this statement holds the locks. By queue_id and
-- position a plan that was made while the table was empty starts from the whole queue and runs
-- over all that was picked for each of its rows.
-- Where servers give hints ($13) a row that is moved with its old ready time may be
-- hidden, so it becomes ready now; the order among those moved together is kept by the
-- microsecond. The rows are locked, so their place need not be asked again; naming it here would
-- let the planner start from all that is delayed.
written AS (
    UPDATE queuebox.message m
    SET place = 0,
        ready_time = CASE WHEN t.call IS NULL AND $13::boolean THEN greatest(m.ready_time,
            statement_timestamp() - ($2 + 200 - t.rank) * interval '1 microsecond') ELSE m.ready_time END,
        state = CASE WHEN t.call IS NULL THEN m.state ELSE 1 END,
        token = CASE WHEN t.call IS NULL THEN m.token ELSE ($14::uuid[])[t.rank] END,
        lease_end = CASE WHEN t.call IS NULL THEN m.lease_end
            ELSE clock_timestamp() + ($6::bigint[])[t.call] * interval '1 microsecond' END,
        lease_ms = CASE WHEN t.call IS NULL THEN m.lease_ms ELSE (($6::bigint[])[t.call] + 999) / 1000 END,
        claim_time = CASE WHEN t.call IS NULL THEN m.claim_time ELSE clock_timestamp() END,
        worker_id = CASE WHEN t.call IS NULL THEN m.worker_id ELSE ($7::text[])[t.call] END,
        attempt = CASE WHEN t.call IS NULL THEN m.attempt ELSE m.attempt + 1 END
    FROM taken t
    WHERE m.ctid = t.tid AND (t.due OR t.call IS NOT NULL)
    RETURNING t.call, t.rank, m.position, m.token, m.claim_time, m.idempotency_key, m.payload, m.content_type, m.attributes,
        m.priority, m.attempt, m.max_attempts, m.create_time, m.ready_time, m.expire_time, m.last_error, m.reason_code,
        m.lease_end, m.key_id
),
leased AS NOT MATERIALIZED (
    SELECT * FROM written w WHERE w.call IS NOT NULL
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
SELECT gate.now, gate.open, gate.limited, (SELECT count(*) FROM picked), (SELECT count(*) FROM due),
    (SELECT d.ready_time FROM queuebox.message d
        WHERE d.queue_id = $1 AND d.place = 1 AND d.ready_time > statement_timestamp()
        ORDER BY d.ready_time, d.position LIMIT 1),
    l.rank, l.position, l.idempotency_key, l.payload, l.content_type, l.attributes, l.priority, l.attempt, l.max_attempts,
    l.create_time, l.ready_time, l.expire_time, l.last_error, l.reason_code, l.lease_end,
    CASE WHEN l.key_id IS NULL THEN NULL ELSE (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = l.key_id) END
FROM gate LEFT JOIN leased l ON true
