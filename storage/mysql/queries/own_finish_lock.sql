-- Locks those of the listed messages that nobody else has locked, and tells what their marks
-- say. Leans on the primary key.
SELECT m.id, m.key_id, m.place < 2, m.state, m.outcome, m.settle_time, m.mark_delay_us
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', queue_id INT PATH '$[1]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.queue_id = j.queue_id
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
