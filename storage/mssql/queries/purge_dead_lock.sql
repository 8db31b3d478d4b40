-- Locks those of the listed dead and cancelled messages of a queue that nobody else holds, and tells
-- what keys each has. They never change, so nothing is judged again. Leans on the primary key.
SELECT m.id, m.idempotency_key, m.ordering_key
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.dead AS m WITH (UPDLOCK, READPAST, ROWLOCK) ON m.id = j.id
WHERE m.queue_id = @queue_id
OPTION (FORCE ORDER)
