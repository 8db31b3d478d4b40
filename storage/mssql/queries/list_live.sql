-- Of the ids @first to @last those that are live messages of the queue, and are
-- meant, newest first, @limit at most. Leans on the primary key, walked backwards.
{{by_versions}}
SELECT TOP (@limit) {{message_columns}},
    CASE WHEN @payload = 1 THEN m.payload END AS payload, {{mark_columns}}
FROM queuebox.message AS m WITH (INDEX (message_id))
WHERE m.queue_id = @queue_id AND m.id >= @first AND m.id <= @last
    AND {{meant_live}}
ORDER BY m.id DESC;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
