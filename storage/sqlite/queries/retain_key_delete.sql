-- Frees the idempotency key of a message that is deleted, unless another one has taken it over
-- (E5). Leans on the primary key.
DELETE FROM idempotency_key WHERE queue_id = ?1 AND key = ?2 AND position = ?3
