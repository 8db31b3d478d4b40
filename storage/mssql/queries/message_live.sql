-- A live message, as everybody sees it. Leans on the primary key.
{{by_versions}}
SELECT {{message_columns}},
    CASE WHEN @payload = 1 THEN m.payload END AS payload, {{mark_columns}}
FROM queuebox.message AS m
WHERE m.id = @id AND m.queue_id = @queue_id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
