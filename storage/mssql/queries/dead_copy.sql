-- Copies messages to the dead ones that end without a settlement of their worker: the caller has
-- the locks of the rows since an earlier statement, and has judged them under it. The token is
-- kept, so that the last holder is told that he lost the claim. message_delete removes them in
-- the same transaction. Leans on the primary key.
INSERT INTO queuebox.dead (id, queue_id, state, finish_time, create_time, ready_time, expire_time, token, action,
    dead_reason, priority, attempt, max_attempts, payload_bytes, wire_bytes, worker_id, last_error, reason_code,
    content_type, ordering_key, idempotency_key, attributes, payload)
SELECT m.id, m.queue_id, j.state, @now, m.create_time, m.ready_time, m.expire_time, m.token, j.action,
    j.reason, -m.urgency, m.attempt - j.refund, m.max_attempts, m.payload_bytes, m.wire_bytes, m.worker_id,
    m.last_error, m.reason_code, m.content_type,
    COALESCE((SELECT k.name FROM queuebox.ordering_key AS k WHERE k.key_id = m.key_id), 0x),
    m.idempotency_key, m.attributes, m.payload
FROM OPENJSON(@list) WITH (id bigint '$[0]', queue_id int '$[1]', state int '$[2]', reason int '$[3]',
    action int '$[4]', refund int '$[5]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
