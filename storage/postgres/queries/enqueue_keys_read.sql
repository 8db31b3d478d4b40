-- Tells what each key of the items stands for: the position and content of its message, the
-- state that everybody sees, and whether that message is past its retention, so that the key
-- is free again (E5). The caller holds the locks of the keys since an earlier statement, so
-- one snapshot shows a key and its message alike.
-- Leans on idempotency_key_pkey and the position indexes of the message tables.
WITH wanted AS MATERIALIZED (
    SELECT DISTINCT u.queue_id, u.key COLLATE "C" AS key
    FROM unnest($1::integer[], $2::text[]) AS u (queue_id, key)
    WHERE u.key <> ''
),
held AS MATERIALIZED (
    SELECT k.queue_id, k.key, k.position, k.content_hash
    FROM wanted w JOIN queuebox.idempotency_key k ON k.queue_id = w.queue_id AND k.key = w.key
)
SELECT h.queue_id, h.key, h.position, h.content_hash,
    coalesce(live.state, done.state, gone.state) AS state
FROM held h
LEFT JOIN LATERAL (
    SELECT CASE WHEN m.state = 3 THEN CASE m.outcome WHEN 1 THEN 2 WHEN 3 THEN 4 WHEN 5 THEN 5 ELSE 0 END
        ELSE m.state END AS state
    FROM queuebox.message m
    WHERE m.queue_id = h.queue_id AND m.position = h.position
) live ON true
LEFT JOIN LATERAL (
    SELECT 2 AS state
    FROM queuebox.completed c JOIN queuebox.queue q ON q.queue_id = c.queue_id
    WHERE c.queue_id = h.queue_id AND c.position = h.position
      AND c.finish_time + q.completed_retention_us * interval '1 microsecond' > clock_timestamp()
    LIMIT 1
) done ON true
LEFT JOIN LATERAL (
    SELECT d.state
    FROM queuebox.dead d JOIN queuebox.queue q ON q.queue_id = d.queue_id
    WHERE d.queue_id = h.queue_id AND d.position = h.position
      AND CASE WHEN d.state = 5 THEN d.finish_time + q.completed_retention_us * interval '1 microsecond' > clock_timestamp()
          ELSE q.dead_retention_us = 0 OR d.finish_time + q.dead_retention_us * interval '1 microsecond' > clock_timestamp() END
) gone ON true
