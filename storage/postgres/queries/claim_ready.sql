-- claim.sql for what nearly all claims are: no claim id, no bound on payloads, nothing delayed that
-- became ready, no limit, and all that is picked fits the answer. It leases what it has picked
-- or, where any of this is not so, nothing; claim.sql comes after it then. Without the line of
-- ready and delayed messages there is nothing to sort and to number, and the rows go out as
-- the UPDATE returns them, and are not stored before.
-- Segments are $7 to $10: highest and lowest priority, ready time and position to start from.
-- What is delayed is looked for from $12 on. Tokens ($11) and calls ($4) go by rank.
-- Leans on message_ready and message_delayed.
WITH gate AS MATERIALIZED (
    SELECT clock_timestamp() AS now, NOT q.paused AND q.max_in_flight = 0 AND q.max_claims_per_second = 0
        AND (d.ready_time > statement_timestamp()) IS NOT FALSE AS open, d.ready_time AS next
    FROM queuebox.queue q
    LEFT JOIN LATERAL (
        SELECT m.ready_time
        FROM queuebox.message m
        WHERE m.queue_id = $1::integer AND m.place = 1 AND m.ready_time >= $12::timestamptz
        ORDER BY m.ready_time, m.position
        LIMIT 1
    ) d ON true
    WHERE q.queue_id = $1::integer
),
picked AS MATERIALIZED (
    SELECT array_agg(r.tid) AS tids, sum(r.wire_bytes) AS wire, count(*) AS n
    FROM (
        SELECT m.tid, m.wire_bytes
        FROM (
            SELECT unnest($7::integer[]) AS highest, unnest($8::integer[]) AS lowest,
                unnest($9::timestamptz[]) AS ready_from, unnest($10::bigint[]) AS position_from
        ) seg
        CROSS JOIN LATERAL (
            SELECT m.ctid AS tid, m.wire_bytes
            FROM queuebox.message m
            {{claimable}}
        ) m
        LIMIT $2
    ) r
)
-- The rows are locked and found by ctid, as in claim.sql; a row that somebody wrote after this
-- statement began is not found. Each row tells what is not of a message, too, since none of
-- them is sure to be returned.
UPDATE queuebox.message m
SET state = 1,
    token = ($11::uuid[])[t.rank],
    lease_end = clock_timestamp() + ($5::bigint[])[($4::integer[])[t.rank]] * interval '1 microsecond',
    lease_ms = (($5::bigint[])[($4::integer[])[t.rank]] + 999) / 1000,
    claim_time = clock_timestamp(),
    worker_id = ($6::text[])[($4::integer[])[t.rank]],
    attempt = m.attempt + 1
FROM (
    SELECT unnest(p.tids) AS tid, generate_subscripts(p.tids, 1) AS rank, p.n
    FROM picked p
    WHERE $3::bigint = 0 OR p.wire <= $3
) t
WHERE m.ctid = t.tid
RETURNING (SELECT g.now FROM gate g), t.n, (SELECT g.next FROM gate g),
    t.rank::bigint, m.position, m.idempotency_key, m.payload, m.content_type, m.attributes, m.priority, m.attempt, m.max_attempts,
    m.create_time, m.ready_time, m.expire_time, m.last_error, m.reason_code, m.lease_end,
    CASE WHEN m.key_id IS NULL THEN NULL ELSE (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = m.key_id) END
