-- The time of the oldest settlements of a queue from a time on: nothing has to be looked for
-- before that has passed its retention. Leans on settlement_time; takes no lock.
SELECT m.settle_time
FROM settlement AS m FORCE INDEX (settlement_time)
WHERE m.queue_id = :queue_id AND m.settle_time >= :from
ORDER BY m.settle_time
LIMIT 1
