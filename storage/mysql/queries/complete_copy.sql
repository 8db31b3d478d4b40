-- Copies messages whose claims hold to the completed ones; the caller has the locks of the rows
-- since an earlier statement, and runs again where not all of them are copied. message_delete
-- removes them in the same transaction. Leans on the primary key.
INSERT INTO completed (id, queue_id, finish_time, create_time, ready_time, expire_time, token, priority, attempt,
    max_attempts, payload_bytes, worker_id, last_error, reason_code, content_type, ordering_key, idempotency_key,
    attributes, result, payload)
SELECT m.id, m.queue_id, :now, m.create_time, m.ready_time, m.expire_time, m.token, -m.urgency, m.attempt,
    m.max_attempts, m.payload_bytes, m.worker_id, m.last_error, m.reason_code, m.content_type,
    COALESCE((SELECT k.name FROM ordering_key AS k WHERE k.key_id = m.key_id), ''),
    m.idempotency_key, m.attributes, UNHEX(j.result), m.payload
FROM JSON_TABLE(:list, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', queue_id INT PATH '$[1]', token CHAR(32) PATH '$[2]', result LONGTEXT PATH '$[3]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE m.state = 1 AND m.token = UNHEX(j.token) AND m.lease_end > {{now}}
