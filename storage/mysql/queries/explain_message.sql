-- What keeps a live message from being claimed, but for those in front of it: where it stands,
-- the head of its key where it is parked, and the dead message that blocks the key; the given
-- time is the storage clock. No row where the message is not live.
-- Leans on the primary keys and message_head.
SELECT m.place, m.state, m.cancel_requested, m.urgency, m.ready_time,
    h.id AS head, CASE h.state WHEN 3 THEN 1 ELSE h.state END,
    CASE WHEN m.place = 2 AND q.ordering_mode = 2 THEN (
        SELECT k.blocked_by FROM ordering_key AS k STRAIGHT_JOIN dead AS d ON d.id = k.blocked_by DIV 2
        WHERE k.key_id = m.key_id AND d.state = 4 AND k.blocked_by < m.id * 2 + 1) END,
    m.place < 2 AND m.ready_time <= :now AND CASE m.state WHEN 0 THEN TRUE WHEN 1 THEN m.lease_end <= :now ELSE FALSE END
FROM message AS m
STRAIGHT_JOIN queue AS q ON q.queue_id = m.queue_id
LEFT JOIN message AS h FORCE INDEX (message_head) ON m.place = 2 AND h.head_of = m.key_id
WHERE m.id = :id AND m.queue_id = :queue_id
