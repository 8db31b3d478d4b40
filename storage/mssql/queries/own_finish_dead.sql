-- Copies marked messages to the dead ones, dead or cancelled as their marks say, as settle_dead
-- does; message_delete removes them in the same transaction, which has the locks of the rows.
-- Leans on the primary key.
INSERT INTO queuebox.dead (id, queue_id, state, finish_time, create_time, ready_time, expire_time, token, action, dead_reason,
    priority, attempt, max_attempts, payload_bytes, wire_bytes, worker_id, last_error, reason_code, content_type,
    ordering_key, idempotency_key, attributes, payload)
SELECT m.id, m.queue_id, CASE m.outcome WHEN 5 THEN 5 ELSE 4 END, m.settle_time, m.create_time, m.ready_time, m.expire_time,
    m.token, m.mark_action, COALESCE(m.mark_dead_reason, 0), -m.urgency, m.attempt, m.max_attempts, m.payload_bytes, m.wire_bytes,
    m.worker_id, m.mark_error, COALESCE(m.mark_reason_code, N''), m.content_type,
    COALESCE((SELECT k.name FROM queuebox.ordering_key AS k WITH (NOLOCK) WHERE k.key_id = m.key_id), 0x), m.idempotency_key,
    m.attributes, m.payload
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m ON m.id = j.id
WHERE m.state = 3 AND m.outcome IN (3, 5)
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
