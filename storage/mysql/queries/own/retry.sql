-- Retries a claim in a transaction of somebody's own (E12).
CALL queuebox_mark(0 /* queue_id */, 2, 1048576 /* max_payload_bytes */, ?, ?, ?, NULL, ?, NULL)
