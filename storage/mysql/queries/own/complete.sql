-- Completes a claim in a transaction of somebody's own (E12).
CALL queuebox_mark(0 /* queue_id */, 1, 1048576 /* max_payload_bytes */, ?, ?, NULL, NULL, NULL, ?)
