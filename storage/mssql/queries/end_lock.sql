-- Locks those of the messages that nobody holds and that end without a settlement, and tells
-- how: all of them as cancelled where @cancel is set, else those that were asked to be cancelled
-- (S14), that have expired (E7), or whose last attempt ran out (C18). What somebody else has
-- locked is passed over, so it never waits, and the clock of its start tells: what was over then
-- is over. Leans on the primary key.
SELECT m.id, m.queue_id, m.key_id, CAST(CASE WHEN m.place < 2 THEN 1 ELSE 0 END AS bit) AS head,
    CASE WHEN @cancel = 1 OR m.cancel_requested = 1 THEN 5 ELSE 4 END AS state,
    CASE WHEN @cancel = 1 OR m.cancel_requested = 1 THEN 0 WHEN m.expire_time <= {{now}} THEN 4 ELSE 3 END AS reason,
    {{now}} AS now
FROM OPENJSON(@list) WITH (id bigint '$[0]', queue_id int '$[1]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (UPDLOCK, READPAST, ROWLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE (m.state = 0 OR (m.state = 1 AND m.lease_end <= {{now}}))
  AND (@cancel = 1 OR m.cancel_requested = 1 OR m.expire_time <= {{now}}
    OR (m.state = 1 AND m.max_attempts > 0 AND m.attempt >= m.max_attempts))
OPTION (FORCE ORDER)
