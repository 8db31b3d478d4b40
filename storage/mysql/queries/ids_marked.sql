-- The messages of a queue that transactions of others have marked and no server has finished yet
-- (E12), the newest :limit. The table is small. Walks the primary key; takes no lock.
SELECT m.id
FROM marked AS m
WHERE m.queue_id = :queue_id
ORDER BY m.seq DESC
LIMIT :limit
