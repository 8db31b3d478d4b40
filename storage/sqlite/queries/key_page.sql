-- The ordering keys after ?1, ?2 at most. Walks the primary key.
SELECT id FROM ordering_key WHERE id > ?1 ORDER BY id LIMIT ?2
