-- Locks those of the listed dead messages of a queue that nobody else holds, and tells what
-- ordering key each has. A cancelled one stays. Leans on the primary key.
SELECT d.id, d.ordering_key
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN dead AS d FORCE INDEX (PRIMARY) ON d.id = j.id
WHERE d.queue_id = :queue_id AND d.state = 4
FOR UPDATE /*!80000 OF d */ SKIP LOCKED
