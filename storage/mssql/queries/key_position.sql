-- Which message an idempotency key names. Leans on the primary key.
SELECT i.position FROM queuebox.idempotency_key AS i WHERE i.queue_id = @queue_id AND i.name = @name
