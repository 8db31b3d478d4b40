-- Queues to count, in the order of their ids. Leans on the primary key.
SELECT id FROM queue WHERE id > ?1 ORDER BY id LIMIT ?2
