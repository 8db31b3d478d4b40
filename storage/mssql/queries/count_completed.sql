-- Counts the first @limit completed messages of the queues after @after, by queue: how many there
-- are, and how many of those are kept. Leans on completed_finish alone; takes no lock. What is not
-- committed yet is counted as it stands: nobody is waited for.
SELECT m.queue_id, COUNT(*) AS n, COUNT(CASE WHEN {{kept_completed}} THEN 1 END) AS kept
FROM (
    SELECT TOP (@limit) c.queue_id, c.finish_time
    FROM queuebox.completed AS c WITH (NOLOCK, INDEX (completed_finish))
    WHERE c.queue_id > @after
    ORDER BY c.queue_id, c.finish_time, c.id
) AS m
INNER JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = m.queue_id
GROUP BY m.queue_id
ORDER BY m.queue_id;
