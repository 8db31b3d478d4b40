-- One message, ready now or delayed; ?4 is the later of its ready time and now.
INSERT INTO message (position, queue_id, place, priority, ready_time, max_attempts, create_time, expire_time, wire_bytes,
                     content_type, idempotency_key, key_id, attributes, payload_bytes, payload)
VALUES (?1, ?2, ?3, ?5, ?4, ?6, ?7, ?8, ?9,
        ?10, ?11, ?12, ?13, ?14, ?15)
