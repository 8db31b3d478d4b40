-- An ordering key, and whether a new message of it stands behind others: a live one, or the
-- dead one that blocks it (O7). Leans on the unique index, and on message_key.
SELECT k.id,
       EXISTS (SELECT 1 FROM message AS m WHERE m.key_id = k.id)
       OR EXISTS (SELECT 1 FROM dead AS d CROSS JOIN queue AS q ON q.id = d.queue_id
                  WHERE d.position = k.blocked_by AND d.state = 4 AND q.ordering = 2)
FROM ordering_key AS k
WHERE k.queue_id = ?1 AND k.key = ?2
