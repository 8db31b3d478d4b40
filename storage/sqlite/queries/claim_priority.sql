-- The next smaller priority in the ready set of a queue. Leans on message_ready, one seek.
SELECT priority FROM message
WHERE queue_id = ?1 AND place = 0 AND priority <= ?2
ORDER BY priority DESC
LIMIT 1
