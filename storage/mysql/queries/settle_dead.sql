-- Copies messages whose claims hold to the dead ones, dead or cancelled, by the action of their
-- workers, with the error and code of it; a Release (4) has none, and leaves those of the try
-- before. The caller has the locks of the rows since an earlier statement, and runs again where
-- not all of them are copied. message_delete removes them in the same transaction.
-- Leans on the primary key.
INSERT INTO dead (id, queue_id, state, finish_time, create_time, ready_time, expire_time, token, action, dead_reason,
    priority, attempt, max_attempts, payload_bytes, wire_bytes, worker_id, last_error, reason_code, content_type,
    ordering_key, idempotency_key, attributes, payload)
SELECT m.id, m.queue_id, j.state, :now, m.create_time, m.ready_time, m.expire_time, m.token, j.action, j.reason,
    -m.urgency, m.attempt, m.max_attempts, m.payload_bytes, m.wire_bytes, m.worker_id,
    IF(j.action = 4, m.last_error, j.error), IF(j.action = 4, m.reason_code, j.reason_code), m.content_type,
    COALESCE((SELECT k.name FROM ordering_key AS k WHERE k.key_id = m.key_id), ''),
    m.idempotency_key, m.attributes, m.payload
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', queue_id INT PATH '$[1]', token CHAR(32) PATH '$[2]',
    state INT PATH '$[3]', reason INT PATH '$[4]', action INT PATH '$[5]', error TEXT CHARACTER SET utf8mb4 PATH '$[6]',
    reason_code VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[7]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE m.state = 1 AND m.token = UNHEX(j.token) AND m.lease_end > {{now}}
