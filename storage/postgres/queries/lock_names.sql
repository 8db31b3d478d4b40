-- Locks ordering keys by their names, as lock_keys.sql does by messages. A key that has no row
-- is passed over: add_names.sql has just made one, so it can only be that the sweep removed an
-- idle key in between, and then the insert that needs it fails and all is run again.
-- Leans on ordering_key_name_key.
WITH named AS MATERIALIZED (
    SELECT DISTINCT u.queue_id, u.name COLLATE "C" AS name
    FROM unnest($1::integer[], $2::text[]) AS u (queue_id, name)
    WHERE u.name <> ''
    ORDER BY 1, 2
),
locked AS MATERIALIZED (
    SELECT k.key_id
    FROM named n CROSS JOIN LATERAL (
        SELECT k.key_id FROM queuebox.ordering_key k
        WHERE k.queue_id = n.queue_id AND k.name = n.name
        FOR UPDATE
    ) k
)
SELECT set_config('queuebox.keys', coalesce((SELECT string_agg(l.key_id::text, ',') FROM locked l), ''), true)
