-- A completed message that is kept. Leans on the primary keys.
{{by_versions}}
SELECT {{finished_columns}},
    2 AS state, 0 AS dead_reason, m.result, CASE WHEN @payload = 1 THEN m.payload END AS payload
FROM queuebox.completed AS m
INNER JOIN queuebox.queue AS q ON q.queue_id = m.queue_id
WHERE m.id = @id AND m.queue_id = @queue_id
    AND {{kept_completed}};
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
