-- Locks the oldest settlements of a queue between two times, :limit at most; what somebody
-- else has locked is passed over. The caller knows from the clock of an earlier statement until
-- when they have passed their retention. Leans on settlement_time.
SELECT m.id, m.token, m.settle_time, 0 AS payload_bytes
FROM settlement AS m FORCE INDEX (settlement_time)
WHERE m.queue_id = :queue_id AND m.settle_time >= :from AND m.settle_time <= :until
ORDER BY m.settle_time
LIMIT :limit
FOR UPDATE SKIP LOCKED
