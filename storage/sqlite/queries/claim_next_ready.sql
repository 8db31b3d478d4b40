-- The earliest ready time of the delayed messages. Leans on message_delayed, one seek.
SELECT ready_time FROM message WHERE queue_id = ?1 AND place = 1 ORDER BY ready_time LIMIT 1
