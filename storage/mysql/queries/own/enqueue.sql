-- Enqueues in a transaction of somebody's own (E12).
CALL queuebox_enqueue(0 /* queue_id */, 3277 /* queue_name */, 1048576 /* max_payload_bytes */, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
