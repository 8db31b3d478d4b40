-- The ids of the completed messages of a queue, :limit at most, whichever: where there are more, a
-- list walks over the table. Leans on completed_finish alone; takes no lock.
SELECT m.id
FROM completed AS m FORCE INDEX (completed_finish)
WHERE m.queue_id = :queue_id
LIMIT :limit
