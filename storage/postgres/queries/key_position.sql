-- Tells which message an idempotency key names. Leans on idempotency_key_pkey.
SELECT k.position FROM queuebox.idempotency_key k WHERE k.queue_id = $1::integer AND k.key = $2::text COLLATE "C"
