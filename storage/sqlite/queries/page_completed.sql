-- The next ?2 completed messages after position ?1, of all queues: the key of the table is the
-- position alone, and a page is bounded by what it walks over. Leans on the primary key.
SELECT position FROM completed WHERE position > ?1 ORDER BY position LIMIT ?2
