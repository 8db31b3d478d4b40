-- Lists queues to count, in the order of their ids. Leans on queue_pkey.
SELECT q.queue_id FROM queuebox.queue q WHERE q.queue_id > $1::integer ORDER BY q.queue_id LIMIT $2::bigint
