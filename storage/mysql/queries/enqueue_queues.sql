-- The clock, and what the queues of new messages give to those. No row for a queue that is not
-- there. Leans on the primary key.
SELECT {{now}}, q.queue_id, q.max_attempts
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]')) AS j
STRAIGHT_JOIN queue AS q ON q.queue_id = j.queue_id
