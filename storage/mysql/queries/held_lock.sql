-- Locks the messages of the listed claims, and passes over those that somebody else has locked:
-- what is not returned is unknown, not lost. Whether the lease is over is judged afterwards
-- (S13). Leans on the primary key.
SELECT j.ord, m.lease_end
FROM JSON_TABLE(:list, '$[*]' COLUMNS (ord INT PATH '$[0]', queue_id INT PATH '$[1]', id BIGINT PATH '$[2]',
    token CHAR(32) PATH '$[3]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.queue_id = j.queue_id AND m.state = 1 AND m.token = UNHEX(j.token)
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
