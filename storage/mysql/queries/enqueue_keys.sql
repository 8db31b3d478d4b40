-- Whether a new message of an ordering key stands behind others: a live one, or the dead one
-- that blocks the key (O7). The caller has the locks of the keys since an earlier statement, and
-- without it nobody adds or ends a message of a key.
-- Leans on the primary keys and on message_key.
SELECT k.key_id,
    CASE WHEN EXISTS (SELECT 1 FROM message AS m FORCE INDEX (message_key) WHERE m.key_id = k.key_id) THEN 1
         WHEN k.blocked_by IS NULL THEN 0
         WHEN EXISTS (SELECT 1 FROM dead AS d STRAIGHT_JOIN queue AS q ON q.queue_id = d.queue_id
                      WHERE d.id = k.blocked_by DIV 2 AND d.queue_id = k.queue_id AND d.state = 4 AND q.ordering_mode = 2) THEN 1
         ELSE 0 END
FROM JSON_TABLE(:list, '$[*]' COLUMNS (key_id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN ordering_key AS k ON k.key_id = j.key_id
