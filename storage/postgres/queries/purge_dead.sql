-- Deletes those of the dead and cancelled messages $2 of a queue that nobody else holds, with
-- their idempotency keys and their history. They never change, so nothing is judged again.
-- One that blocks an ordering key goes where the transaction has the lock of the key; promote.sql
-- lets the key go on (O7).
-- Leans on dead_pkey, ordering_key_name_key, idempotency_key_pkey, settlement_position.
WITH mine AS MATERIALIZED (
    SELECT string_to_array(current_setting('queuebox.keys', true), ',')::bigint[] AS ids
),
locked AS MATERIALIZED (
    SELECT d.queue_id, d.position, d.create_time, d.idempotency_key
    FROM unnest($2::bigint[]) AS u (position)
    JOIN queuebox.dead d ON d.queue_id = $1::integer AND d.position = u.position
    WHERE d.ordering_key IS NULL
       OR (SELECT k.blocked_by = d.position AND NOT coalesce(k.key_id = ANY ((SELECT m.ids FROM mine m)::bigint[]), false)
           FROM queuebox.ordering_key k
           WHERE k.queue_id = d.queue_id AND k.name = d.ordering_key) IS NOT TRUE
    FOR UPDATE OF d SKIP LOCKED
),
{{forget}}
gone AS (
    DELETE FROM queuebox.dead d USING going g
    WHERE d.queue_id = g.queue_id AND d.position = g.position
    RETURNING 1
)
SELECT clock_timestamp(), (SELECT count(*) FROM gone)
