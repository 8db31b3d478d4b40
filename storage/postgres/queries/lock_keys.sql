-- Locks the ordering keys of the live messages that are named, in the one order that is used
-- everywhere (D12), and leaves their ids in a setting of the transaction, where the statements
-- after it find them without a round trip; another setting tells whether a dead message may block one
-- of them. It is a statement of its own, before every look at the messages of a key: a statement
-- that waits for a lock and then looks at other rows sees those as they were before it waited.
-- $3 bounds the waits, as in take_names.sql.
-- Leans on message_pkey and ordering_key_pkey.
WITH bound AS MATERIALIZED (
    SELECT CASE WHEN $3::text <> '' THEN set_config('lock_timeout', $3::text, true) ELSE '' END AS lock_timeout
),
named AS MATERIALIZED (
    SELECT DISTINCT m.key_id
    FROM (SELECT unnest($1::integer[]) AS queue_id, unnest($2::bigint[]) AS position) u
    CROSS JOIN LATERAL (
        SELECT m.key_id FROM queuebox.message m
        WHERE m.queue_id = u.queue_id AND m.position = u.position AND m.key_id IS NOT NULL
        LIMIT 1
    ) m
),
found AS MATERIALIZED (
    SELECT k.key_id, k.queue_id, k.name
    FROM named n CROSS JOIN LATERAL (
        SELECT k.key_id, k.queue_id, k.name FROM queuebox.ordering_key k WHERE k.key_id = n.key_id LIMIT 1
    ) k
    WHERE (SELECT b.lock_timeout FROM bound b) IS NOT NULL
    ORDER BY k.queue_id, k.name
),
locked AS MATERIALIZED (
    SELECT k.key_id, k.blocked_by
    FROM found f CROSS JOIN LATERAL (
        SELECT k.key_id, k.blocked_by FROM queuebox.ordering_key k WHERE k.key_id = f.key_id FOR UPDATE
    ) k
)
SELECT set_config('queuebox.keys', coalesce((SELECT string_agg(l.key_id::text, ',') FROM locked l), ''), true),
    set_config('queuebox.blocked', coalesce((SELECT bool_or(l.blocked_by IS NOT NULL) FROM locked l), false)::text, true)
