-- The messages of a queue that are leased or settling, for the slots that are missing (L1). Walks
-- the ready messages of the queue, once after max_in_flight was set and twice more. Leans on
-- message_ready; takes no lock.
SELECT m.id
FROM message AS m FORCE INDEX (message_ready)
WHERE m.queue_id = :queue_id AND m.place = 0 AND m.state IN (1, 3)
