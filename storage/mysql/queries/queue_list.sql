-- Queues after a name, in the order of its bytes. Leans on queue_name.
SELECT {{queue_columns}}
FROM queue AS q
WHERE q.name > COALESCE(:after, '')
ORDER BY q.name
LIMIT :limit
