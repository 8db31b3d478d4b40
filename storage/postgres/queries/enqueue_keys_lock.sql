-- Locks the keys of the items, in the same order as they are taken. A later statement than
-- the one that takes keys, so that it finds what that one waited for, and an earlier one
-- than the read of what they stand for: a statement that waits for a lock and then looks at
-- other rows sees those as they were before it waited.
-- Leans on idempotency_key_pkey.
SELECT 1
FROM (
    SELECT DISTINCT u.queue_id, u.key COLLATE "C" AS key
    FROM unnest($1::integer[], $2::text[]) AS u (queue_id, key)
    WHERE u.key <> ''
    ORDER BY 1, 2
) w
JOIN queuebox.idempotency_key k ON k.queue_id = w.queue_id AND k.key = w.key
ORDER BY k.queue_id, k.key
FOR UPDATE OF k
