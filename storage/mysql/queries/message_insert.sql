-- Inserts a message; for more of them the values are repeated, which the server knows as a
-- simple insert and counts the ids of one after the other, whatever innodb_autoinc_lock_mode
-- says. Writes the primary key, message_ready and message_delayed, and for a message with an
-- ordering key message_head and message_key.
INSERT INTO message (queue_id, place, urgency, ready_time, create_time, expire_time, key_id, max_attempts, payload_bytes,
    wire_bytes, content_type, idempotency_key, attributes, payload)
VALUES (:queue_id, :place, :urgency, :ready_time, :create_time, :expire_time, :key_id, :max_attempts, :payload_bytes,
    :wire_bytes, :content_type, :idempotency_key, :attributes, :payload)
