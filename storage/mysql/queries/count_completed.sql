-- Counts the first :limit completed messages of the queues after :after, by queue: how many there
-- are, and how many of those are kept. Leans on completed_finish alone; takes no lock.
SELECT m.queue_id, COUNT(*) AS n, COUNT(CASE WHEN {{kept_completed}} THEN 1 END) AS kept
FROM (
    SELECT c.queue_id, c.finish_time
    FROM completed AS c FORCE INDEX (completed_finish)
    WHERE c.queue_id > :after
    ORDER BY c.queue_id, c.finish_time, c.id
    LIMIT :limit
) AS m
INNER JOIN queue AS q ON q.queue_id = m.queue_id
GROUP BY m.queue_id
ORDER BY m.queue_id
