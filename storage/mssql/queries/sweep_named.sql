-- Those of the named messages that are over: @now was read by an earlier statement. A row that
-- somebody has locked is looked at the next time. Leans on the primary key.
SELECT m.id, m.queue_id, m.key_id, m.payload_bytes
FROM OPENJSON(@list) WITH (id bigint '$[0]', queue_id int '$[1]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE {{over}}
OPTION (FORCE ORDER);
