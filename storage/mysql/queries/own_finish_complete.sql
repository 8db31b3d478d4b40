-- Copies marked messages to the completed ones, as complete_copy does; message_delete removes
-- them in the same transaction, which has the locks of the rows. Leans on the primary key.
INSERT INTO completed (id, queue_id, finish_time, create_time, ready_time, expire_time, token, priority, attempt,
    max_attempts, payload_bytes, worker_id, last_error, reason_code, content_type, ordering_key, idempotency_key,
    attributes, result, payload)
SELECT m.id, m.queue_id, m.settle_time, m.create_time, m.ready_time, m.expire_time, m.token, -m.urgency, m.attempt,
    m.max_attempts, m.payload_bytes, m.worker_id, m.last_error, m.reason_code, m.content_type,
    COALESCE((SELECT k.name FROM ordering_key AS k WHERE k.key_id = m.key_id), ''), m.idempotency_key,
    m.attributes, m.mark_result, m.payload
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.state = 3 AND m.outcome = 1
