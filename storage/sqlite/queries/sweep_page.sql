-- The live message that stands ?2 messages after the first one after position ?1; no row where
-- there are not so many. Walks the primary key.
SELECT position FROM message WHERE position > ?1 ORDER BY position LIMIT 1 OFFSET ?2
