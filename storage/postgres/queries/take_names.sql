-- Locks ordering keys by their names ($1, $2), and makes the rows of those that have none. Each
-- name stands here once, in the one order in which keys are locked (D12): by queue, then by the
-- bytes of the name. What is missing is made before anything is locked. $3 bounds the waits, in
-- milliseconds; where it is empty, the bound of the session does.
-- The ids stay in a setting of the transaction, in the order of the names, where the statements
-- after this one find them without a round trip; another setting tells whether a dead message may
-- block one of them. A key that vanished meanwhile, as one that nobody needed, or that another
-- transaction was just making, is 0: the statement that needs it fails, and all is run again.
-- Leans on ordering_key_name_key and ordering_key_pkey.
WITH bound AS MATERIALIZED (
    SELECT CASE WHEN $3::text <> '' THEN set_config('lock_timeout', $3::text, true) ELSE '' END AS lock_timeout
),
named AS MATERIALIZED (
    SELECT u.ord, u.queue_id, u.name, k.key_id AS old,
        CASE WHEN k.key_id IS NULL THEN nextval('queuebox.ordering_key_key_id_seq') END AS new
    FROM (
        SELECT unnest($1::integer[]) AS queue_id, unnest($2::text[]) AS name, generate_subscripts($2::text[], 1) AS ord
    ) u
    LEFT JOIN LATERAL (
        SELECT k.key_id FROM queuebox.ordering_key k
        WHERE k.queue_id = u.queue_id AND k.name = u.name COLLATE "C"
        LIMIT 1
    ) k ON true
    WHERE (SELECT b.lock_timeout FROM bound b) IS NOT NULL
),
made AS (
    INSERT INTO queuebox.ordering_key (key_id, queue_id, name) OVERRIDING SYSTEM VALUE
    SELECT n.new, n.queue_id, n.name FROM named n WHERE n.new IS NOT NULL ORDER BY n.ord
    ON CONFLICT (queue_id, name) DO NOTHING
    RETURNING 1
),
locked AS MATERIALIZED (
    SELECT n.ord, coalesce(k.key_id, n.new) AS key_id, k.blocked_by
    FROM named n LEFT JOIN LATERAL (
        SELECT k.key_id, k.blocked_by FROM queuebox.ordering_key k
        WHERE k.key_id = n.old AND (SELECT count(*) FROM made) >= 0
        FOR UPDATE
    ) k ON true
),
-- Where one of the new names was there after all, none of the new ones counts.
taken AS (
    SELECT CASE WHEN (SELECT count(*) FROM made) = (SELECT count(*) FROM named n WHERE n.new IS NOT NULL)
        THEN string_agg(coalesce(l.key_id, 0)::text, ',' ORDER BY l.ord) ELSE '' END AS keys,
        coalesce(bool_or(l.blocked_by IS NOT NULL), false) AS blocked
    FROM locked l
)
SELECT set_config('queuebox.keys', coalesce(t.keys, ''), true), set_config('queuebox.blocked', t.blocked::text, true)
FROM taken t
