-- One queue by name. Leans on queue_name.
SELECT {{queue_columns}}
FROM queue AS q
WHERE q.name = :name
