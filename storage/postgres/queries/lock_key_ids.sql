-- Locks ordering keys by their ids, as lock_keys.sql does by messages, and passes over those
-- that somebody has. Leans on ordering_key_pkey.
WITH found AS MATERIALIZED (
    SELECT k.key_id, k.queue_id, k.name
    FROM (SELECT DISTINCT u.key_id FROM unnest($1::bigint[]) AS u (key_id)) u
    CROSS JOIN LATERAL (
        SELECT k.key_id, k.queue_id, k.name FROM queuebox.ordering_key k WHERE k.key_id = u.key_id LIMIT 1
    ) k
    ORDER BY k.queue_id, k.name
),
locked AS MATERIALIZED (
    SELECT k.key_id
    FROM found f CROSS JOIN LATERAL (
        SELECT k.key_id FROM queuebox.ordering_key k WHERE k.key_id = f.key_id FOR UPDATE SKIP LOCKED
    ) k
)
SELECT set_config('queuebox.keys', coalesce((SELECT string_agg(l.key_id::text, ',') FROM locked l), ''), true)
