-- The retry policies of queues. It waits for nobody: the settings are read as they stand.
-- Leans on the primary key.
SELECT q.queue_id, q.retry_min_us, q.retry_max_us, q.retry_multiplier, q.retry_jitter
FROM OPENJSON(@list) WITH (queue_id int '$[0]') AS j
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = j.queue_id
OPTION (FORCE ORDER)
