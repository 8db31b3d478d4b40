-- The next ordering keys in the order of their ids. Walks the primary key.
SELECT k.key_id, k.queue_id FROM ordering_key AS k WHERE k.key_id > :after ORDER BY k.key_id LIMIT :limit
