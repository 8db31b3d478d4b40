-- Waits for a message, as long as lock_timeout says, and lets it go at once. Who has the lock
-- of an ordering key waits for nothing else, so one who must wait for a message with a key
-- does so before. Leans on message_pkey.
SELECT 1 FROM queuebox.message m WHERE m.queue_id = $1::integer AND m.position = $2::bigint FOR UPDATE
