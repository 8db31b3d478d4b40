-- Locks the ordering keys of a completion with follow-ups: that of the message ($1, $2), where it is
-- live and has one, and those that are named for the follow-ups ($3, $4), all in the one order that
-- is used everywhere (D12). add_names.sql has made what was missing. The settings are those of
-- take_names.sql: the ids of the names stand first, in their order, and then that of the message.
-- Leans on message_pkey, ordering_key_pkey and ordering_key_name_key.
WITH found AS MATERIALIZED (
    SELECT k.key_id, k.queue_id, k.name, NULL::integer AS ord
    FROM (
        SELECT m.key_id FROM queuebox.message m
        WHERE m.queue_id = $1::integer AND m.position = $2::bigint AND m.key_id IS NOT NULL
        LIMIT 1
    ) m CROSS JOIN LATERAL (
        SELECT k.key_id, k.queue_id, k.name FROM queuebox.ordering_key k WHERE k.key_id = m.key_id LIMIT 1
    ) k
    UNION ALL
    SELECT k.key_id, u.queue_id, u.name COLLATE "C", u.ord
    FROM (
        SELECT unnest($3::integer[]) AS queue_id, unnest($4::text[]) AS name, generate_subscripts($4::text[], 1) AS ord
    ) u
    LEFT JOIN LATERAL (
        SELECT k.key_id FROM queuebox.ordering_key k
        WHERE k.queue_id = u.queue_id AND k.name = u.name COLLATE "C"
        LIMIT 1
    ) k ON true
),
sorted AS MATERIALIZED (
    SELECT f.key_id, f.ord FROM found f ORDER BY f.queue_id, f.name
),
locked AS MATERIALIZED (
    SELECT f.ord, k.key_id, k.blocked_by
    FROM sorted f LEFT JOIN LATERAL (
        SELECT k.key_id, k.blocked_by FROM queuebox.ordering_key k WHERE k.key_id = f.key_id FOR UPDATE
    ) k ON true
)
SELECT set_config('queuebox.keys', coalesce((SELECT string_agg(coalesce(l.key_id, 0)::text, ',' ORDER BY l.ord NULLS LAST) FROM locked l), ''), true),
    set_config('queuebox.blocked', coalesce((SELECT bool_or(l.blocked_by IS NOT NULL) FROM locked l), false)::text, true)
