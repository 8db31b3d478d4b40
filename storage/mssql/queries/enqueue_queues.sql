-- The clock, and what the queues of new messages give to those. No row for a queue that is not
-- there. Settings are read past the locks of who is changing them. Leans on the primary key.
SELECT {{now}} AS now, q.queue_id, q.max_attempts
FROM OPENJSON(@list) WITH (queue_id int '$[0]') AS j
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = j.queue_id
