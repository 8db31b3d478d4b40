-- Locks the limit of a queue and reads its bucket, and whether leases are to be looked for that
-- were granted while nobody counted: claims of the queue stand in line, across servers. Leans on
-- claim_limit_queue.
SELECT l.in_flight, l.rate, l.full_ns, CAST(CASE WHEN l.fill_time <= {{now}} THEN 1 ELSE 0 END AS bit) AS due
FROM queuebox.claim_limit AS l WITH (UPDLOCK, ROWLOCK)
WHERE l.queue_id = @queue_id;
