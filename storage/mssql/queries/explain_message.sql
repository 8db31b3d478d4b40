-- What keeps a live message from being claimed, but for those in front of it: where it stands,
-- the head of its key where it is parked, and the dead message that blocks the key; the given
-- time is the storage clock. No row where the message is not live. It waits for nobody: what it
-- shows may be about to change. Leans on the primary keys and message_head.
SELECT m.place, m.state, m.cancel_requested, m.urgency, m.ready_time,
    h.id AS head, CASE h.state WHEN 3 THEN 1 ELSE h.state END AS head_state,
    CASE WHEN m.place = 2 AND q.ordering_mode = 2 THEN (
        SELECT k.blocked_by FROM queuebox.ordering_key AS k WITH (NOLOCK)
        INNER JOIN queuebox.dead AS d WITH (NOLOCK) ON d.id = k.blocked_by / 2
        WHERE k.key_id = m.key_id AND d.state = 4 AND k.blocked_by < m.id * 2 + 1) END AS blocked_by,
    CAST(CASE WHEN m.place < 2 AND m.ready_time <= @now AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= @now))
        THEN 1 ELSE 0 END AS bit) AS ready
FROM queuebox.message AS m WITH (NOLOCK)
INNER JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = m.queue_id
OUTER APPLY (SELECT TOP (1) o.id, o.state FROM queuebox.message AS o WITH (NOLOCK)
    WHERE m.place = 2 AND o.key_id = m.key_id AND o.place < 2 ORDER BY o.id) AS h
WHERE m.id = @id AND m.queue_id = @queue_id
