-- Locks messages by their claims, unless somebody else has locked them, and tells what the
-- decision needs. Whether the lease is over is judged by the clock of each row, read when its
-- lock is held (S13), and once more by the statement that writes. Leans on the primary key.
SELECT j.i, {{now}}, m.lease_end, m.key_id, m.place < 2, m.cancel_requested,
    COALESCE(m.expire_time <= {{now}}, 0), m.attempt, m.max_attempts
FROM JSON_TABLE(:list, '$[*]' COLUMNS (
    i INT PATH '$[0]', queue_id INT PATH '$[1]', id BIGINT PATH '$[2]', token CHAR(32) PATH '$[3]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE m.state = 1 AND m.token = UNHEX(j.token)
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
