-- The next live messages after an id, of all queues: the key of the table is the id alone, and
-- a page is bounded by what it walks over. It waits for nobody; what it finds is judged again.
-- Leans on the primary key.
SELECT TOP (@look) m.id FROM queuebox.message AS m WITH (NOLOCK) WHERE m.id > @after ORDER BY m.id
