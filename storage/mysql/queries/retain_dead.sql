-- Locks the oldest dead messages of a queue between two times, :limit at most; what somebody
-- else has locked is passed over. The caller knows from the clock of an earlier statement until
-- when they have passed their retention. Leans on dead_finish.
SELECT m.id, m.token, m.finish_time, m.payload_bytes
FROM dead AS m FORCE INDEX (dead_finish)
WHERE m.queue_id = :queue_id AND m.state = 4 AND m.finish_time >= :from AND m.finish_time <= :until
ORDER BY m.finish_time, m.id
LIMIT :limit
FOR UPDATE SKIP LOCKED
