-- Removes those of the locked ordering keys that no message needs: none is live, and no dead
-- one blocks. Who was about to use such a key finds it gone and runs again; while somebody does that
-- (keepKeys), none is removed. One transaction at a time does this.
-- Leans on ordering_key_pkey, message_head, message_parked, queue_pkey, dead_pkey.
WITH lock AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7420742074207424) AS had),
idle AS MATERIALIZED (
    SELECT k.tid
    FROM unnest(string_to_array(current_setting('queuebox.keys', true), ',')::bigint[]) AS u (key_id)
    CROSS JOIN LATERAL (
        SELECT k.ctid AS tid,
            EXISTS (SELECT 1 FROM queuebox.message m WHERE m.key_id = k.key_id AND m.place < 2)
            OR EXISTS (SELECT 1 FROM queuebox.message m WHERE m.key_id = k.key_id AND m.place = 2)
            OR CASE WHEN k.blocked_by IS NULL THEN false ELSE coalesce(
                (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = k.queue_id)
                AND (SELECT d.state = 4 FROM queuebox.dead d WHERE d.queue_id = k.queue_id AND d.position = k.blocked_by),
                false) END AS needed
        FROM queuebox.ordering_key k
        WHERE k.key_id = u.key_id
        LIMIT 1
    ) k
    WHERE (SELECT l.had FROM lock l) AND NOT k.needed
),
gone AS (
    DELETE FROM queuebox.ordering_key k USING idle i WHERE k.ctid = i.tid RETURNING 1
)
SELECT count(*) FROM gone
