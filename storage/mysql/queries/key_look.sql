-- How ordering keys stand: what is noted to block each and whether it still does, its head and
-- whether somebody holds that, and the first of those that are parked. Takes no lock and waits
-- for nobody; the caller has the lock of the key since an earlier statement, or looks again
-- under it. Leans on the primary keys, message_head and message_key, one seek each.
SELECT k.key_id, k.queue_id, k.blocked_by,
    k.blocked_by IS NOT NULL
    AND COALESCE((SELECT q.ordering_mode = 2 FROM queue AS q WHERE q.queue_id = k.queue_id), 0)
    AND EXISTS (SELECT 1 FROM dead AS d WHERE d.id = k.blocked_by DIV 2 AND d.state = 4) AS blocked,
    h.id AS head,
    COALESCE(h.state = 0 OR (h.state = 1 AND h.lease_end <= {{now}}), 0) AS pending,
    (SELECT m.id FROM message AS m FORCE INDEX (message_key)
        WHERE m.key_id = k.key_id AND m.place = 2 ORDER BY m.id LIMIT 1) AS parked
FROM JSON_TABLE(:list, '$[*]' COLUMNS (key_id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (PRIMARY) ON k.key_id = j.key_id
LEFT JOIN message AS h FORCE INDEX (message_head) ON h.head_of = k.key_id
