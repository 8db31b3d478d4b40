-- The ids of the live messages of a queue, :limit at most, whichever: where there are more, a list
-- walks over the table. Leans on message_ready alone; takes no lock.
SELECT m.id
FROM message AS m FORCE INDEX (message_ready)
WHERE m.queue_id = :queue_id
LIMIT :limit
