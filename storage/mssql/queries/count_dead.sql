-- Counts the first @limit dead and cancelled messages of the queues after @after, by queue: how
-- many there are, and how many of those are dead and kept. Leans on dead_finish alone; takes no
-- lock. What is not committed yet is counted as it stands: nobody is waited for.
SELECT m.queue_id, COUNT(*) AS n, COUNT(CASE WHEN m.state = 4 AND {{kept_dead}} THEN 1 END) AS kept
FROM (
    SELECT TOP (@limit) d.queue_id, d.state, d.finish_time
    FROM queuebox.dead AS d WITH (NOLOCK, INDEX (dead_finish))
    WHERE d.queue_id > @after
    ORDER BY d.queue_id, d.state, d.finish_time, d.id
) AS m
INNER JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = m.queue_id
GROUP BY m.queue_id
ORDER BY m.queue_id;
