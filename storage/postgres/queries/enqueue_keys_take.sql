-- Takes over keys whose message is past its retention (E5); the caller holds their locks.
-- Leans on idempotency_key_pkey.
UPDATE queuebox.idempotency_key k
SET position = u.position, content_hash = u.content_hash, create_time = clock_timestamp()
FROM unnest($1::integer[], $2::text[], $3::bigint[], $4::bytea[]) AS u (queue_id, key, position, content_hash)
WHERE k.queue_id = u.queue_id AND k.key = u.key COLLATE "C"
