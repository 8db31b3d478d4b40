-- Copies messages to the dead ones that end without a settlement of their worker: the caller has
-- the locks of the rows since an earlier statement, and has judged them under it. The token is
-- kept, so that the last holder is told that he lost the claim. message_delete removes them in
-- the same transaction. Leans on the primary key.
INSERT INTO dead (id, queue_id, state, finish_time, create_time, ready_time, expire_time, token, action, dead_reason,
    priority, attempt, max_attempts, payload_bytes, wire_bytes, worker_id, last_error, reason_code, content_type,
    ordering_key, idempotency_key, attributes, payload)
SELECT m.id, m.queue_id, j.state, :now, m.create_time, m.ready_time, m.expire_time, m.token, j.action, j.reason,
    -m.urgency, m.attempt - j.refund, m.max_attempts, m.payload_bytes, m.wire_bytes, m.worker_id, m.last_error,
    m.reason_code, m.content_type,
    COALESCE((SELECT k.name FROM ordering_key AS k WHERE k.key_id = m.key_id), ''),
    m.idempotency_key, m.attributes, m.payload
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', queue_id INT PATH '$[1]', state INT PATH '$[2]',
    reason INT PATH '$[3]', action INT PATH '$[4]', refund INT PATH '$[5]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
