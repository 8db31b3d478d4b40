-- Locks those of the messages that nobody holds and that end without a settlement, and tells
-- how: all of them as cancelled where :cancel is set, else those that were asked to be cancelled
-- (S14), that have expired (E7), or whose last attempt ran out (C18). What somebody else has
-- locked is passed over. Leans on the primary key.
SELECT m.id, m.queue_id, m.key_id, m.place < 2,
    IF(:cancel OR m.cancel_requested, 5, 4),
    CASE WHEN :cancel OR m.cancel_requested THEN 0 WHEN m.expire_time <= {{now}} THEN 4 ELSE 3 END,
    {{now}}
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', queue_id INT PATH '$[1]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE (m.state = 0 OR (m.state = 1 AND m.lease_end <= {{now}}))
  AND (:cancel OR m.cancel_requested OR m.expire_time <= {{now}}
    OR (m.state = 1 AND m.max_attempts > 0 AND m.attempt >= m.max_attempts))
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
