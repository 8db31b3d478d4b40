-- Locks those of the listed dead and cancelled messages of a queue that nobody else holds, and tells
-- what keys each has. They never change, so nothing is judged again. Leans on the primary key.
SELECT m.id, m.idempotency_key, m.ordering_key
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN dead AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.queue_id = :queue_id
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
