-- How the listed ordering keys stand: what is noted to block each and whether it still does,
-- its first message by position, its head, and whether somebody holds that. Leans on the
-- primary keys, and on message_key and message_head, one seek each.
SELECT k.id, k.queue_id, k.blocked_by,
       q.ordering = 2 AND EXISTS (SELECT 1 FROM dead AS d WHERE d.position = k.blocked_by AND d.state = 4),
       (SELECT m.position FROM message AS m WHERE m.key_id = k.id ORDER BY m.position LIMIT 1),
       h.position,
       CASE h.state WHEN 1 THEN h.lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
                    WHEN 3 THEN 1
                    ELSE 0 END
FROM json_each(?1) AS j
CROSS JOIN ordering_key AS k
CROSS JOIN queue AS q
LEFT JOIN message AS h ON h.key_id = k.id AND h.place < 2
WHERE k.id = j.value AND q.id = k.queue_id
