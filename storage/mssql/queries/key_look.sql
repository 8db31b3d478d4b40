-- How ordering keys stand: what is noted to block each and whether it still does, its head and
-- whether somebody holds that, and the first of those that are parked. It waits for nobody: the
-- caller has the lock of the key, without which nobody adds, ends or moves a message of it, so
-- reading past the locks of messages finds the right ones (NOLOCK); whoever looks without the
-- lock looks again under it. A head that somebody has locked counts as one that nobody holds,
-- and key_heads, which cannot have its lock, tells.
-- Leans on the primary keys, message_head and message_key, one seek each.
SELECT k.key_id, k.queue_id, k.blocked_by,
    CAST(CASE WHEN k.blocked_by IS NOT NULL
        AND EXISTS (SELECT 1 FROM queuebox.queue AS q WITH (NOLOCK)
            WHERE q.queue_id = k.queue_id AND q.ordering_mode = 2)
        AND EXISTS (SELECT 1 FROM queuebox.dead AS d WITH (NOLOCK)
            WHERE d.id = k.blocked_by / 2 AND d.state = 4) THEN 1 ELSE 0 END AS bit) AS blocked,
    h.id AS head,
    CAST(CASE WHEN h.id IS NULL THEN 0
        WHEN NOT EXISTS (SELECT 1 FROM queuebox.message AS o WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
            WHERE o.id = h.id AND (o.state = 3 OR (o.state = 1 AND o.lease_end > {{now}}))) THEN 1
        ELSE 0 END AS bit) AS pending,
    p.id AS parked
FROM OPENJSON(@list) WITH (key_id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.ordering_key AS k WITH (NOLOCK) ON k.key_id = j.key_id
OUTER APPLY (SELECT TOP (1) m.id FROM queuebox.message AS m WITH (NOLOCK)
    WHERE m.key_id = k.key_id AND m.place < 2 ORDER BY m.id) AS h
OUTER APPLY (SELECT TOP (1) m.id FROM queuebox.message AS m WITH (NOLOCK)
    WHERE m.key_id = k.key_id AND m.place = 2 ORDER BY m.id) AS p
