-- Those of the named messages that are completed messages of the queue and kept, and are meant.
-- Leans on the primary key.
{{by_versions}}
SELECT {{finished_columns}},
    2 AS state, 0 AS dead_reason, m.result, CASE WHEN @payload = 1 THEN m.payload END AS payload
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.completed AS m ON m.id = j.id
INNER LOOP JOIN queuebox.queue AS q ON q.queue_id = m.queue_id
WHERE m.queue_id = @queue_id
    AND {{kept_completed}}
    AND {{meant_completed}};
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
