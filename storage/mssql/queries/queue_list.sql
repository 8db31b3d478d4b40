-- Queues after a name, in the order of its bytes. Leans on queue_name.
SELECT TOP (@limit) {{queue_columns}}
FROM queuebox.queue AS q
WHERE q.name > COALESCE(@after, 0x)
ORDER BY q.name;
