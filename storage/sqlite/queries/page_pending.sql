-- The next ?2 live messages after position ?1, of all queues: the key of the table is the
-- position alone, and a page is bounded by what it walks over. Leans on the primary key.
SELECT position FROM message WHERE position > ?1 ORDER BY position LIMIT ?2
