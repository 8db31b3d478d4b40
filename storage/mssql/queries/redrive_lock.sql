-- Locks those of the listed dead messages of a queue that nobody else holds, and tells what
-- ordering key each has. A cancelled one stays. Leans on the primary key.
SELECT d.id, d.ordering_key
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.dead AS d WITH (UPDLOCK, READPAST, ROWLOCK) ON d.id = j.id
WHERE d.queue_id = @queue_id AND d.state = 4
OPTION (FORCE ORDER)
