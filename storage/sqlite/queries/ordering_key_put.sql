-- The row of an ordering key that has none yet; the caller has looked under the write lock.
INSERT INTO ordering_key (queue_id, key) VALUES (?1, ?2) RETURNING id
