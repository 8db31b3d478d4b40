-- As held_lock, and waits for what somebody else has locked, as long as the session waits for a
-- lock. Leans on the primary key.
SELECT j.ord, m.lease_end
FROM OPENJSON(@list) WITH (ord int '$[0]', queue_id int '$[1]', id bigint '$[2]', token uniqueidentifier '$[3]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (UPDLOCK, ROWLOCK) ON m.id = j.id
WHERE m.queue_id = j.queue_id AND m.state = 1 AND m.token = j.token
OPTION (FORCE ORDER, MAXDOP 1)
