-- Locks the ordering keys of a completion with follow-ups: that of the message, where it is
-- live and has one, and those that are named for the follow-ups, all in the one order that is
-- used everywhere (D12). Otherwise as lock_keys.sql and lock_names.sql, whose rows it joins.
-- Leans on message_pkey, ordering_key_pkey and ordering_key_name_key.
WITH named AS MATERIALIZED (
    SELECT DISTINCT u.queue_id, u.name COLLATE "C" AS name
    FROM unnest($3::integer[], $4::text[]) AS u (queue_id, name)
    WHERE u.name <> ''
),
found AS MATERIALIZED (
    SELECT k.key_id, k.queue_id, k.name
    FROM (
        SELECT m.key_id FROM queuebox.message m
        WHERE m.queue_id = $1::integer AND m.position = $2::bigint AND m.key_id IS NOT NULL
        LIMIT 1
    ) m CROSS JOIN LATERAL (
        SELECT k.key_id, k.queue_id, k.name FROM queuebox.ordering_key k WHERE k.key_id = m.key_id LIMIT 1
    ) k
    UNION
    SELECT k.key_id, k.queue_id, k.name
    FROM named n CROSS JOIN LATERAL (
        SELECT k.key_id, k.queue_id, k.name FROM queuebox.ordering_key k
        WHERE k.queue_id = n.queue_id AND k.name = n.name
        LIMIT 1
    ) k
),
sorted AS MATERIALIZED (
    SELECT f.key_id FROM found f ORDER BY f.queue_id, f.name
),
locked AS MATERIALIZED (
    SELECT k.key_id
    FROM sorted f CROSS JOIN LATERAL (
        SELECT k.key_id FROM queuebox.ordering_key k WHERE k.key_id = f.key_id FOR UPDATE
    ) k
)
SELECT set_config('queuebox.keys', coalesce((SELECT string_agg(l.key_id::text, ',') FROM locked l), ''), true)
