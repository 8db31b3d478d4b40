-- Which messages transactions of others have marked (E12), with what the mark says; the state is
-- NULL where the message is not there. Walks the primary key.
SELECT k.id, k.queue_id, k.position, m.state, m.outcome, m.mark_action, coalesce(m.mark_dead_reason, 0), m.settle_time,
       m.settle_time + m.mark_delay, m.token
FROM marked AS k LEFT JOIN message AS m ON m.position = k.position AND m.queue_id = k.queue_id
ORDER BY k.id
LIMIT ?1
