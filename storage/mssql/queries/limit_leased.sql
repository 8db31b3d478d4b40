-- The messages of a queue that are leased or settling, for the slots that are missing (L1), those
-- too of which a transaction that is open says so: one slot too many is removed by the next
-- claim. Walks the ready messages of the queue, once after max_in_flight was set and twice more.
-- Leans on message_ready; takes no lock.
SELECT m.id
FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_ready))
WHERE m.queue_id = @queue_id AND m.place = 0 AND m.state IN (1, 3);
