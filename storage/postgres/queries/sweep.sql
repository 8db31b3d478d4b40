-- Ends messages that no claim may take any more, out of those named ($1, $2), or out of the
-- next $5 in the order of the primary key in some parts of it, each from ($3, $4) up to ($9, $10). What a look without locks finds is
-- locked, unless somebody else holds it, and judged again under the lock (C18, E7, S14): a
-- live lease and a settling message (state 3) stay, whatever else is true. A statement ends
-- at most $6 messages and about $7 bytes, so that no lock lasts; the rest is left for the
-- next page, which starts after the row that is returned. Ends: 5 cancelled, else the reason.
-- A message with an ordering key (its position is odd) is only told of, and is ended by a second
-- run ($8) between lock_keys.sql and promote.sql, where its key could be locked.
-- What a page meets whose lease is over, or whose delay has long been, and which a claim may take is told of, by queue (W7).
-- Leans on message_pkey and ordering_key_pkey; writes dead_pkey and dead_finish.
WITH page AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.state, m.lease_end, m.expire_time, m.attempt, m.max_attempts, m.cancel_requested,
        m.payload_bytes, m.place, m.ready_time
    FROM (SELECT DISTINCT u.queue_id, u.position FROM unnest($1::integer[], $2::bigint[]) AS u (queue_id, position)) u
    JOIN queuebox.message m ON m.queue_id = u.queue_id AND m.position = u.position
    UNION ALL
    SELECT * FROM (
        SELECT m.*
        FROM unnest($3::integer[], $4::bigint[], $9::integer[], $10::bigint[]) AS s (from_queue, from_position, to_queue, to_position)
        CROSS JOIN LATERAL (
            SELECT m.queue_id, m.position, m.state, m.lease_end, m.expire_time, m.attempt, m.max_attempts, m.cancel_requested,
                m.payload_bytes, m.place, m.ready_time
            FROM queuebox.message m
            WHERE (m.queue_id, m.position) >= (s.from_queue, s.from_position)
              AND (m.queue_id, m.position) < (s.to_queue, s.to_position)
            ORDER BY m.queue_id, m.position
            LIMIT $5::bigint
        ) m
        LIMIT $5::bigint
    ) p
),
due AS MATERIALIZED (
    SELECT p.queue_id, p.position, p.payload_bytes, (p.position & 1) = 1 AS keyed
    FROM page p
    WHERE (p.state = 0 OR (p.state = 1 AND p.lease_end <= clock_timestamp()))
      AND (p.cancel_requested OR p.expire_time <= clock_timestamp()
        OR (p.state = 1 AND p.max_attempts > 0 AND p.attempt >= p.max_attempts))
),
ending AS MATERIALIZED (
    SELECT d.queue_id, d.position,
        row_number() OVER w AS rank, sum(d.payload_bytes) OVER w AS bytes
    FROM due d
    WHERE d.keyed = $8::boolean
    WINDOW w AS (ORDER BY d.queue_id, d.position ROWS UNBOUNDED PRECEDING)
),
keys AS MATERIALIZED (
    SELECT string_to_array(current_setting('queuebox.keys', true), ',')::bigint[] AS ids
),
locked AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.state, m.lease_end, m.expire_time, m.attempt, m.max_attempts, m.cancel_requested
    FROM (
        SELECT e.queue_id, e.position FROM ending e
        WHERE e.rank = 1 OR (e.rank <= $6::bigint AND e.bytes <= $7::bigint)
        ORDER BY e.queue_id, e.position
    ) e
    JOIN queuebox.message m ON m.queue_id = e.queue_id AND m.position = e.position
    WHERE CASE WHEN $8 THEN m.key_id = ANY ((SELECT k.ids FROM keys k)::bigint[]) ELSE true END
    FOR UPDATE OF m SKIP LOCKED
),
-- One clock for all that is judged of a row, read when its lock is held.
timed AS MATERIALIZED (
    SELECT l.*, clock_timestamp() AS now FROM locked l
),
decided AS MATERIALIZED (
    SELECT t.queue_id, t.position, t.now,
        CASE WHEN t.cancel_requested THEN 5
            WHEN t.expire_time <= t.now THEN 4
            WHEN t.state = 1 AND t.max_attempts > 0 AND t.attempt >= t.max_attempts THEN 3 END AS ends
    FROM timed t
    WHERE t.state = 0 OR (t.state = 1 AND t.lease_end <= t.now)
),
removed AS (
    DELETE FROM queuebox.message m
    USING decided d
    WHERE m.queue_id = d.queue_id AND m.position = d.position AND d.ends IS NOT NULL
    RETURNING d.ends, d.now, m.*
),
-- The token of the last holder stays in the row, and no action: he is told that he lost.
dead AS (
    INSERT INTO queuebox.dead (queue_id, position, finish_time, create_time, ready_time, expire_time, token,
        priority, attempt, max_attempts, payload_bytes, wire_bytes, state, action, dead_reason, worker_id, last_error,
        reason_code, content_type, ordering_key, idempotency_key, attributes, payload)
    SELECT r.queue_id, r.position, r.now, r.create_time, r.ready_time, r.expire_time, r.token,
        r.priority, r.attempt, r.max_attempts, r.payload_bytes, r.wire_bytes, CASE r.ends WHEN 5 THEN 5 ELSE 4 END,
        0, CASE r.ends WHEN 5 THEN 0 ELSE r.ends END, r.worker_id, r.last_error,
        r.reason_code, r.content_type, (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = r.key_id),
        r.idempotency_key, r.attributes, r.payload
    FROM removed r
),
-- A head that dies blocks its key, as in settle.sql.
blocking AS MATERIALIZED (
    SELECT k.tid, r.position
    FROM removed r CROSS JOIN LATERAL (
        SELECT k.ctid AS tid FROM queuebox.ordering_key k WHERE k.key_id = r.key_id LIMIT 1
    ) k
    WHERE r.ends <> 5 AND r.key_id IS NOT NULL AND r.place < 2
      AND (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = r.queue_id)
),
blocked AS (
    UPDATE queuebox.ordering_key k
    SET blocked_by = greatest(k.blocked_by, b.position)
    FROM blocking b
    WHERE k.ctid = b.tid
)
SELECT clock_timestamp(), counted.dead, counted.expired, counted.cancelled,
    told.queue_ids, told.positions, rest.queue_id, rest.position, rest.cut,
    looked.newest, looked.us, looked.queue_ids, looked.positions, overdue.queue_ids, overdue.ready_times
FROM (
    SELECT count(*) FILTER (WHERE r.ends = 3) AS dead, count(*) FILTER (WHERE r.ends = 4) AS expired,
        count(*) FILTER (WHERE r.ends = 5) AS cancelled
    FROM removed r
) counted
CROSS JOIN (
    SELECT array_agg(d.queue_id) AS queue_ids, array_agg(d.position) AS positions
    FROM due d WHERE d.keyed AND NOT $8
) told
LEFT JOIN LATERAL (
    SELECT * FROM (
        -- The last one ended, where the bounds left others.
        SELECT e.queue_id, e.position, true AS cut
        FROM ending e
        WHERE (e.rank = 1 OR (e.rank <= $6::bigint AND e.bytes <= $7::bigint))
          AND EXISTS (SELECT 1 FROM ending o WHERE o.rank > 1 AND (o.rank > $6::bigint OR o.bytes > $7::bigint))
        ORDER BY e.rank DESC LIMIT 1
    ) early
    UNION ALL
    SELECT * FROM (
        -- The last one looked at, where there may be more.
        SELECT p.queue_id, p.position, false
        FROM page p
        WHERE $5::bigint > 0 AND (SELECT count(*) FROM page) >= $5::bigint
        ORDER BY p.queue_id DESC, p.position DESC LIMIT 1
    ) late
    LIMIT 1
) rest ON true
-- What it looked at, and how long that took. Where it was at least $11 microseconds, all of it.
CROSS JOIN LATERAL (
    SELECT n.newest, n.us,
        CASE WHEN n.us >= $11::bigint THEN (SELECT array_agg(p.queue_id ORDER BY p.queue_id, p.position) FROM page p) END AS queue_ids,
        CASE WHEN n.us >= $11::bigint THEN (SELECT array_agg(p.position ORDER BY p.queue_id, p.position) FROM page p) END AS positions
    FROM (
        SELECT max(p.position) AS newest,
            (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint AS us
        FROM page p
    ) n
) looked
CROSS JOIN (
    SELECT array_agg(o.queue_id) AS queue_ids, array_agg(o.ready_time) AS ready_times
    FROM (
        SELECT p.queue_id, min(p.ready_time) AS ready_time
        FROM page p
        WHERE (p.state = 1 AND p.place = 0 AND p.lease_end <= clock_timestamp()
               -- What a claim should have moved long ago: its row was locked then.
            OR p.state = 0 AND p.place = 1 AND p.ready_time <= clock_timestamp() - interval '3 seconds')
          AND NOT p.cancel_requested
          AND (p.expire_time IS NULL OR p.expire_time > clock_timestamp()) AND (p.max_attempts = 0 OR p.attempt < p.max_attempts)
        GROUP BY p.queue_id
    ) o
) overdue
