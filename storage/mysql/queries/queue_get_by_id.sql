-- One queue by id. Leans on the primary key.
SELECT {{queue_columns}}
FROM queue AS q
WHERE q.queue_id = :queue_id
