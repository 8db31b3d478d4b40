-- Counts the first :limit dead and cancelled messages of the queues after :after, by queue: how
-- many there are, and how many of those are dead and kept. Leans on dead_finish alone; takes no
-- lock.
SELECT m.queue_id, COUNT(*) AS n, COUNT(CASE WHEN m.state = 4 AND {{kept_dead}} THEN 1 END) AS kept
FROM (
    SELECT d.queue_id, d.state, d.finish_time
    FROM dead AS d FORCE INDEX (dead_finish)
    WHERE d.queue_id > :after
    ORDER BY d.queue_id, d.state, d.finish_time, d.id
    LIMIT :limit
) AS m
INNER JOIN queue AS q ON q.queue_id = m.queue_id
GROUP BY m.queue_id
ORDER BY m.queue_id
