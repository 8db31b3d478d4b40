-- What keeps a live message from being claimed, but for those in front of it: where it stands, the
-- head of its key where it is parked, and the dead message that blocks the key. ?3 is the storage
-- clock as the snapshot has read it. No row where the message is not live. Leans on the primary
-- keys and on message_head.
SELECT m.place, m.state, m.cancel_requested, h.position, iif(h.state = 3, 1, h.state),
       iif(m.place = 2 AND q.ordering = 2, (SELECT d.position FROM ordering_key AS k CROSS JOIN dead AS d
        WHERE k.id = m.key_id AND d.position = k.blocked_by AND d.state = 4 AND k.blocked_by < m.position), NULL),
       m.place < 2 AND m.ready_time <= ?3
           AND CASE m.state WHEN 0 THEN 1 WHEN 1 THEN m.lease_end <= ?3 ELSE 0 END
FROM message AS m
CROSS JOIN queue AS q ON q.id = m.queue_id
LEFT JOIN message AS h ON m.place = 2 AND h.key_id = m.key_id AND h.place < 2
WHERE m.position = ?2 AND m.queue_id = ?1
