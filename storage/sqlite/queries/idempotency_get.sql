-- Who holds an idempotency key. Leans on the primary key.
SELECT position, content_hash FROM idempotency_key WHERE queue_id = ?1 AND key = ?2
