-- Deletes the completed messages ?1, which the caller has picked under the write lock. Leans on the
-- primary key.
DELETE FROM completed WHERE position IN (SELECT value FROM json_each(?1))
RETURNING queue_id, position, idempotency_key
