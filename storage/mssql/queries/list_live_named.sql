-- Those of the named messages that are live messages of the queue, and are meant. Leans on
-- the primary key.
{{by_versions}}
SELECT {{message_columns}},
    CASE WHEN @payload = 1 THEN m.payload END AS payload, {{mark_columns}}
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m ON m.id = j.id
WHERE m.queue_id = @queue_id
    AND {{meant_live}};
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
