-- Which of the listed claims are still held, and their messages (C14). The four conditions of
-- the fence. A row that somebody else is writing is waited for. Leans on the primary key.
SELECT {{message_columns}}, m.payload
FROM OPENJSON(@list) WITH (id bigint '$[0]', token uniqueidentifier '$[1]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (READCOMMITTEDLOCK) ON m.id = j.id
WHERE m.queue_id = @queue_id
  AND m.state = 1
  AND m.token = j.token
  AND m.lease_end > {{now}}
