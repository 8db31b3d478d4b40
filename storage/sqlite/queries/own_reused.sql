-- A message whose idempotency key names another one of other content (E3): dead from the start.
INSERT INTO dead (position, queue_id, state, finish_time, token, action, dead_reason, attempt, max_attempts, priority, ready_time,
                  create_time, expire_time, worker_id, last_error, reason_code, content_type, idempotency_key,
                  ordering_key, wire_bytes, attributes, payload_bytes, payload)
VALUES (?1, ?2, 4, ?3, NULL, 0, 5, 0, ?4, ?5, ?6,
        ?7, ?8, '', 'the idempotency key belongs to another message, of other content', 'IDEMPOTENCY_KEY_REUSED', ?9, ?10,
        ?11, ?12, ?13, ?14, ?15)
