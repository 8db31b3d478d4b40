-- A dead or cancelled message that is kept. Leans on the primary keys.
{{by_versions}}
SELECT {{finished_columns}},
    m.state, m.dead_reason, CAST(NULL AS varbinary(max)) AS result, CASE WHEN @payload = 1 THEN m.payload END AS payload
FROM queuebox.dead AS m
INNER JOIN queuebox.queue AS q ON q.queue_id = m.queue_id
WHERE m.id = @id AND m.queue_id = @queue_id
    AND {{kept_dead}};
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
