-- The row of an ordering key. Leans on the unique index.
SELECT id FROM ordering_key WHERE queue_id = ?1 AND key = ?2
