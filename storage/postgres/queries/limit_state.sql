-- What a limit leaves, read under its lock in a statement after the one that took it. A slot
-- counts while its message is leased: settling, or its lease end lies ahead. A lease that
-- looks over may be renewed or marked by a transaction that has not committed: the slot
-- counts unless this statement gets the lock of the row and the lease is over then. It tells
-- too which slots a claim that takes something shall remove: those that do not count, and
-- old ones that do, which it appends anew. Rows are sought one by one (LATERAL and LIMIT),
-- since a join would be planned by what the tables held when the plan was made.
-- Leans on queue_pkey, claim_pace_pkey, claim_slot_pkey, message_pkey, message_delayed.
WITH q AS MATERIALIZED (
    SELECT clock_timestamp() AS now, g.paused, g.max_in_flight, g.max_claims_per_second
    FROM queuebox.queue g WHERE g.queue_id = $1::integer
),
pace AS MATERIALIZED (
    SELECT p.rate, p.full_ns, p.slot_from
    FROM queuebox.claim_pace p WHERE p.queue_id = $1 ORDER BY p.seq DESC LIMIT 1
),
slot AS MATERIALIZED (
    SELECT s.seq, s.position, m.state, m.lease_end,
        CASE m.state WHEN 3 THEN true WHEN 1 THEN m.lease_end > clock_timestamp() ELSE false END AS live
    FROM queuebox.claim_slot s
    LEFT JOIN LATERAL (
        SELECT r.state, r.lease_end FROM queuebox.message r
        WHERE r.queue_id = $1 AND r.position = s.position LIMIT 1
    ) m ON true
    WHERE s.queue_id = $1 AND s.seq >= coalesce((SELECT p.slot_from FROM pace p), 0)
      AND (SELECT q.max_in_flight > 0 FROM q)
),
over AS MATERIALIZED (
    SELECT m.position
    FROM slot s
    CROSS JOIN LATERAL (
        SELECT r.position FROM queuebox.message r
        WHERE r.queue_id = $1 AND r.position = s.position AND r.state = 1 AND r.lease_end <= clock_timestamp()
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) m
    WHERE s.state = 1 AND NOT s.live
),
judged AS MATERIALIZED (
    SELECT s.seq, s.position, s.state, s.lease_end,
        s.live OR (coalesce(s.state, 0) = 1 AND s.position NOT IN (SELECT o.position FROM over o)) AS counts,
        s.seq < (SELECT max(n.seq) FROM slot n) - 4 * (SELECT q.max_in_flight FROM q)::bigint - 100 AS old
    FROM slot s
)
SELECT q.now, q.paused, q.max_in_flight, q.max_claims_per_second,
    coalesce((SELECT p.rate FROM pace p), 0), coalesce((SELECT p.full_ns FROM pace p), 0),
    (SELECT count(DISTINCT j.position) FROM judged j WHERE j.counts),
    (SELECT min(j.lease_end) FROM judged j WHERE j.counts AND j.state = 1),
    (SELECT min(j.seq) FROM judged j WHERE j.counts AND NOT j.old),
    (SELECT array_agg(j.position) FROM judged j WHERE j.counts AND j.old),
    (SELECT array_agg(j.seq) FROM judged j WHERE j.old OR NOT j.counts),
    (SELECT d.ready_time FROM queuebox.message d
        WHERE d.queue_id = $1 AND d.place = 1 AND d.ready_time > statement_timestamp()
        ORDER BY d.ready_time, d.position LIMIT 1)
FROM q
