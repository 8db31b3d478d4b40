-- The retry policies of queues. Leans on the primary key.
SELECT q.queue_id, q.retry_min_us, q.retry_max_us, q.retry_multiplier, q.retry_jitter
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]')) AS j
STRAIGHT_JOIN queue AS q FORCE INDEX (PRIMARY) ON q.queue_id = j.queue_id
