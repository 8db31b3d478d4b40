-- The next live messages after an id, of all queues: the key of the table is the id alone, and
-- a page is bounded by what it walks over. Leans on the primary key.
SELECT m.id FROM message AS m FORCE INDEX (PRIMARY) WHERE m.id > :after ORDER BY m.id LIMIT :look
