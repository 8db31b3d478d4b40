-- Takes an idempotency key, or takes it over from a message that has passed its
-- retention (E5): the caller has looked at that message under the write lock.
INSERT INTO idempotency_key (queue_id, key, position, content_hash, create_time)
VALUES (?1, ?2, ?3, ?4, CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
ON CONFLICT (queue_id, key) DO UPDATE
SET position = excluded.position, content_hash = excluded.content_hash, create_time = excluded.create_time
