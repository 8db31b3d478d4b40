-- Locks a queue by name, so that what is read of it holds until the change. Leans on queue_name.
SELECT {{queue_columns}}
FROM queuebox.queue AS q WITH (UPDLOCK, ROWLOCK)
WHERE q.name = @name;
