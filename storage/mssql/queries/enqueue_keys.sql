-- Whether a new message of an ordering key stands behind others: a live one, or the dead one
-- that blocks the key (O7). The caller has the locks of the keys since an earlier statement, and
-- without it nobody adds or ends a message of a key: so reading past the locks of its messages
-- finds the right ones, and waits for no claim (NOLOCK).
-- Leans on the primary keys and on message_key.
SELECT k.key_id,
    CAST(CASE WHEN EXISTS (SELECT 1 FROM queuebox.message AS m WITH (NOLOCK) WHERE m.key_id = k.key_id) THEN 1
        WHEN k.blocked_by IS NULL THEN 0
        WHEN EXISTS (SELECT 1 FROM queuebox.queue AS q WITH (NOLOCK)
                WHERE q.queue_id = k.queue_id AND q.ordering_mode = 2)
            AND EXISTS (SELECT 1 FROM queuebox.dead AS d WITH (NOLOCK)
                WHERE d.id = k.blocked_by / 2 AND d.queue_id = k.queue_id AND d.state = 4) THEN 1
        ELSE 0 END AS bit) AS behind
FROM OPENJSON(@list) WITH (key_id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.ordering_key AS k ON k.key_id = j.key_id
