-- The time of the oldest cancelled messages of a queue from a time on: nothing has to be looked for
-- before that has passed its retention. Leans on dead_finish; takes no lock.
SELECT m.finish_time
FROM dead AS m FORCE INDEX (dead_finish)
WHERE m.queue_id = :queue_id AND m.state = 5 AND m.finish_time >= :from
ORDER BY m.finish_time
LIMIT 1
