-- Copies messages whose claims hold to the dead ones, dead or cancelled, by the action of their
-- workers, with the error and code of it; a Release (4) has none, and leaves those of the try
-- before. The caller has the locks of the rows since an earlier statement, and runs again where
-- not all of them are copied. message_delete removes them in the same transaction.
-- Leans on the primary key.
INSERT INTO queuebox.dead (id, queue_id, state, finish_time, create_time, ready_time, expire_time, token, action,
    dead_reason, priority, attempt, max_attempts, payload_bytes, wire_bytes, worker_id, last_error, reason_code,
    content_type, ordering_key, idempotency_key, attributes, payload)
SELECT m.id, m.queue_id, j.state, @now, m.create_time, m.ready_time, m.expire_time, m.token, j.action,
    j.reason, -m.urgency, m.attempt, m.max_attempts, m.payload_bytes, m.wire_bytes, m.worker_id,
    CASE WHEN j.action = 4 THEN m.last_error ELSE j.error END,
    CASE WHEN j.action = 4 THEN m.reason_code ELSE j.reason_code END,
    m.content_type, COALESCE((SELECT k.name FROM queuebox.ordering_key AS k WHERE k.key_id = m.key_id), 0x),
    m.idempotency_key, m.attributes, m.payload
FROM OPENJSON(@list) WITH (id bigint '$[0]', queue_id int '$[1]', token uniqueidentifier '$[2]', state int '$[3]',
    reason int '$[4]', action int '$[5]', error nvarchar(2000) '$[6]', reason_code nvarchar(255) '$[7]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE m.state = 1 AND m.token = j.token AND m.lease_end > {{now}}
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
