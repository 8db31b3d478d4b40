-- Which of the listed claims are not plainly held: their row is gone, another's, or locked by
-- somebody, or their holder was asked to stop. No row for the others. Leans on the primary key.
SELECT j.ord, m.cancel_requested
FROM OPENJSON(@list) WITH (ord int '$[0]', queue_id int '$[1]', id bigint '$[2]', token uniqueidentifier '$[3]') AS j
LEFT OUTER LOOP JOIN queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
    ON m.id = j.id AND m.queue_id = j.queue_id AND m.state = 1 AND m.token = j.token
WHERE m.id IS NULL OR m.cancel_requested = 1
OPTION (FORCE ORDER)
