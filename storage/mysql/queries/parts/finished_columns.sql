-- What rowlock's scanFinished reads of a finished message m before its state, the reason of
-- its death, its result and its payload.
m.id, m.queue_id, m.priority, m.attempt, m.max_attempts, m.payload_bytes,
    m.idempotency_key, m.content_type, m.attributes, m.ordering_key,
    m.create_time, m.ready_time, m.expire_time, m.finish_time, m.last_error, m.reason_code, m.worker_id
