-- Removes the settlement history of purged messages. Leans on the primary key.
DELETE m FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.settlement AS m WITH (ROWLOCK) ON m.id = j.id
WHERE m.queue_id = @queue_id
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
