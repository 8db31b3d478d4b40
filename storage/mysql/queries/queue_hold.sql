-- Locks a queue by name, so that what is read of it holds until the change. Leans on queue_name.
SELECT {{queue_columns}}
FROM queue AS q
WHERE q.name = :name
FOR UPDATE
