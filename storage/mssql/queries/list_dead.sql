-- Of the ids @first to @last those that are dead and cancelled messages of the queue and kept, and
-- are meant, newest first, @limit at most. Leans on dead_queue, walked backwards.
{{by_versions}}
SELECT TOP (@limit) {{finished_columns}},
    m.state, m.dead_reason, CAST(NULL AS varbinary(max)) AS result, CASE WHEN @payload = 1 THEN m.payload END AS payload
FROM queuebox.dead AS m WITH (INDEX (dead_queue))
INNER JOIN queuebox.queue AS q ON q.queue_id = m.queue_id
WHERE m.queue_id = @queue_id AND m.id >= @first AND m.id <= @last
    AND {{kept_dead}}
    AND {{meant_dead}}
ORDER BY m.id DESC;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
