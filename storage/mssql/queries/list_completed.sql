-- Of the ids @first to @last those that are completed messages of the queue and kept, and are
-- meant, newest first, @limit at most. Leans on the primary key, walked backwards.
{{by_versions}}
SELECT TOP (@limit) {{finished_columns}},
    2 AS state, 0 AS dead_reason, m.result, CASE WHEN @payload = 1 THEN m.payload END AS payload
FROM queuebox.completed AS m WITH (INDEX (completed_id))
INNER JOIN queuebox.queue AS q ON q.queue_id = m.queue_id
WHERE m.queue_id = @queue_id AND m.id >= @first AND m.id <= @last
    AND {{kept_completed}}
    AND {{meant_completed}}
ORDER BY m.id DESC;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
