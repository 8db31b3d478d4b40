-- Asks the holder of a message to stop (S14), where nobody asked before. A lease that has run
-- out since end_copy looked makes no difference: the sweep ends the message then.
-- Leans on the primary key and writes no indexed column.
UPDATE message SET cancel_requested = 1
WHERE position = ?2 AND queue_id = ?1
  AND state = 1
  AND NOT cancel_requested
