-- Which of the listed claims are still held, and their messages (C14). The four conditions of
-- the fence. Leans on the primary key.
SELECT {{message_columns}}, m.payload
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', token CHAR(32) PATH '$[1]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.queue_id = :queue_id
  AND m.state = 1
  AND m.token = UNHEX(j.token)
  AND m.lease_end > {{now}}
