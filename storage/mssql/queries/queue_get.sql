-- One queue by name. Leans on queue_name.
SELECT {{queue_columns}}
FROM queuebox.queue AS q
WHERE q.name = @name;
