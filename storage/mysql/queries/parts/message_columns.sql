-- What rowlock's scanClaimed reads of a live message m before its payload. The name of the
-- ordering key is read without a lock: it never changes. Leans on the primary keys.
m.id, m.queue_id, m.key_id, m.token, m.state, m.outcome, m.urgency, m.attempt, m.max_attempts, m.payload_bytes,
    m.idempotency_key, m.content_type, m.attributes,
    (SELECT k.name FROM ordering_key AS k WHERE k.key_id = m.key_id) AS ordering_key,
    m.create_time, m.ready_time, m.expire_time, m.lease_end, m.last_error, m.reason_code, m.worker_id
