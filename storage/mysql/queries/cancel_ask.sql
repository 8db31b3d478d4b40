-- Asks the holder of a message to stop (S14). The caller has the lock of the row.
-- Leans on the primary key and writes no indexed column.
UPDATE message SET cancel_requested = TRUE WHERE id = :id AND queue_id = :queue_id AND state = 1
