-- What a completion of messages with ordering keys does more than complete.sql, after whose last
-- CTE this stands: it makes the next message of each key the head, as promote.sql would. A message that was
-- held was the head, so there is none any more, and the first of the parked takes its place (O5),
-- unless a dead message blocks the key (O7). The keys are locked since an earlier statement
-- (lock_keys.sql), and this one waits for nobody. A row that somebody has locked is passed over, and
-- never for the one behind it: it is found first and locked then; the sweep of the keys comes back
-- for it (O9), as for a block that is none any more.
-- Leans on message_parked, ordering_key_pkey, queue_pkey and dead_pkey.
, nexts AS MATERIALIZED (
    SELECT p.tid
    FROM removed r CROSS JOIN LATERAL (
        SELECT m.ctid AS tid, m.position FROM queuebox.message m
        WHERE m.key_id = r.key_id AND m.place = 2
        ORDER BY m.position
        LIMIT 1
    ) p
    WHERE r.place < 2 AND CASE WHEN (SELECT current_setting('queuebox.blocked', true) = 'false') THEN true ELSE (
        SELECT k.blocked_by IS NULL OR p.position < k.blocked_by
            OR (SELECT q.ordering_mode = 2 FROM queuebox.queue q WHERE q.queue_id = k.queue_id) IS NOT TRUE
            OR (SELECT d.state = 4 FROM queuebox.dead d WHERE d.queue_id = k.queue_id AND d.position = k.blocked_by) IS NOT TRUE
        FROM queuebox.ordering_key k
        WHERE k.key_id = r.key_id
    ) END
),
heads AS MATERIALIZED (
    SELECT m.ctid AS tid FROM queuebox.message m
    WHERE m.ctid = ANY (ARRAY(SELECT n.tid FROM nexts n))
    FOR UPDATE SKIP LOCKED
),
promoted AS (
    UPDATE queuebox.message m
    SET place = CASE WHEN m.ready_time > (SELECT j.now FROM judged j) THEN 1 ELSE 0 END,
        ready_time = greatest(m.ready_time, (SELECT j.now FROM judged j))
    WHERE m.ctid = ANY (ARRAY(SELECT h.tid FROM heads h))
    RETURNING m.queue_id
)
