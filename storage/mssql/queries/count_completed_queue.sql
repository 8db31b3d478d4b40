-- Counts the next @limit completed messages of one queue that finished after a time and id, and
-- tells those of the last one. Leans on completed_finish alone; takes no lock. What is not
-- committed yet is counted as it stands: nobody is waited for.
SELECT COUNT(*) AS n, MAX(CASE WHEN s.place = @limit THEN s.finish_time END) AS last_time,
    MAX(CASE WHEN s.place = @limit THEN s.id END) AS last_id
FROM (
    SELECT t.finish_time, t.id, ROW_NUMBER() OVER (ORDER BY t.finish_time, t.id) AS place
    FROM (
        SELECT TOP (@limit) f.finish_time, f.id
        FROM queuebox.completed AS f WITH (NOLOCK, INDEX (completed_finish))
        WHERE f.queue_id = @queue_id AND f.finish_time >= @after_time
            AND (f.finish_time > @after_time OR f.id > @after_id)
        ORDER BY f.finish_time, f.id
    ) AS t
) AS s;
