-- Looks at the next $2 ordering keys in some parts of them, each from $1 up to $4, without locks, and names those with work to do:
-- a key that no message needs, whose row can go; a block by a message that is there no more, or
-- in a queue that passes over dead ones now; and a key without a head, or with one that has let
-- an earlier message wait and that nobody holds. Each is looked at again under its lock.
-- A key that was made or locked by transaction $3 or a later one, which its xmin and xmax tell for
-- as long as nothing froze them, was in use a while ago and is left where it is. age() of no
-- transaction, or of a frozen one, is the largest there is. But where it took long to find that
-- there is no message, many have died while somebody held a snapshot: the next message makes the
-- key anew, and nobody walks over their index entries any more.
-- Leans on ordering_key_pkey, message_head, message_parked, message_pkey, queue_pkey, dead_pkey.
WITH page AS MATERIALIZED (
    SELECT k.key_id, k.queue_id, k.blocked_by,
        age(k.xmin) BETWEEN 0 AND n.since OR age(k.xmax) BETWEEN 0 AND n.since AS used
    FROM (
        SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint - $3::bigint AS since
    ) n
    CROSS JOIN unnest($1::bigint[], $4::bigint[]) AS s (from_key, to_key)
    CROSS JOIN LATERAL (
        SELECT k.key_id, k.queue_id, k.blocked_by, k.xmin, k.xmax
        FROM queuebox.ordering_key k
        WHERE k.key_id >= s.from_key AND k.key_id < s.to_key
        ORDER BY k.key_id
        LIMIT $2::bigint
    ) k
    LIMIT $2::bigint
),
seen AS MATERIALIZED (
    SELECT p.key_id, p.queue_id, p.blocked_by, p.used, clock_timestamp() AS began,
        (SELECT m.position FROM queuebox.message m WHERE m.key_id = p.key_id AND m.place < 2 LIMIT 1) AS head,
        (SELECT m.position FROM queuebox.message m WHERE m.key_id = p.key_id AND m.place = 2
            ORDER BY m.position LIMIT 1) AS next,
        CASE WHEN p.blocked_by IS NULL THEN false ELSE coalesce(
            (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = p.queue_id)
            AND (SELECT d.state = 4 FROM queuebox.dead d WHERE d.queue_id = p.queue_id AND d.position = p.blocked_by),
            false) END AS blocked,
        clock_timestamp() AS ended
    FROM page p
),
work AS MATERIALIZED (
    SELECT s.key_id, s.head IS NULL AND s.next IS NULL AND NOT s.blocked AS idle
    FROM seen s
    WHERE (s.blocked_by IS NOT NULL AND NOT s.blocked)
       OR (s.head IS NULL AND s.next IS NULL AND NOT s.blocked
            AND (NOT s.used OR s.ended - s.began >= $5::bigint * interval '1 microsecond'))
       OR (s.next IS NOT NULL AND (NOT s.blocked OR s.next < s.blocked_by) AND CASE
            WHEN s.head IS NULL THEN true
            WHEN s.next > s.head THEN false
            ELSE (SELECT m.state = 0 OR (m.state = 1 AND m.lease_end <= clock_timestamp())
                FROM queuebox.message m WHERE m.queue_id = s.queue_id AND m.position = s.head) END)
)
SELECT clock_timestamp(), (SELECT array_agg(DISTINCT p.queue_id) FROM page p), rest.key_id, work.key_id, work.idle,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint, looked.newest, looked.us,
    CASE WHEN looked.us >= $6::bigint THEN (SELECT array_agg(p.key_id ORDER BY p.key_id) FROM page p) END
FROM (
    -- What it looked at, and how long that took.
    SELECT max(p.key_id) AS newest, (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint AS us
    FROM page p
) looked
LEFT JOIN LATERAL (
    SELECT p.key_id FROM page p WHERE (SELECT count(*) FROM page) >= $2::bigint ORDER BY p.key_id DESC LIMIT 1
) rest ON true
LEFT JOIN work ON true
ORDER BY work.key_id
