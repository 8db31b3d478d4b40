-- Locks messages by their claims, unless somebody else has locked them, and tells what the
-- decision needs. The clock is that of the start of the statement, which never waits; the
-- statement that writes tests the lease again, under the lock (S13). Leans on the primary key.
SELECT j.i, {{now}} AS now, m.lease_end, m.key_id, CAST(CASE WHEN m.place < 2 THEN 1 ELSE 0 END AS bit) AS head,
    m.cancel_requested, CAST(CASE WHEN m.expire_time <= {{now}} THEN 1 ELSE 0 END AS bit) AS expired,
    m.attempt, m.max_attempts
FROM OPENJSON(@list) WITH (i int '$[0]', queue_id int '$[1]', id bigint '$[2]', token uniqueidentifier '$[3]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (UPDLOCK, READPAST, ROWLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE m.state = 1 AND m.token = j.token
OPTION (FORCE ORDER)
