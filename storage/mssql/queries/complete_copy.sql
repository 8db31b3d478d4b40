-- Copies messages whose claims hold to the completed ones; the caller has the locks of the rows
-- since an earlier statement, and runs again where not all of them are copied. message_delete
-- removes them in the same transaction. Leans on the primary key.
INSERT INTO queuebox.completed (id, queue_id, finish_time, create_time, ready_time, expire_time, token, priority,
    attempt, max_attempts, payload_bytes, worker_id, last_error, reason_code, content_type, ordering_key,
    idempotency_key, attributes, result, payload)
SELECT m.id, m.queue_id, @now, m.create_time, m.ready_time, m.expire_time, m.token, -m.urgency,
    m.attempt, m.max_attempts, m.payload_bytes, m.worker_id, m.last_error, m.reason_code, m.content_type,
    COALESCE((SELECT k.name FROM queuebox.ordering_key AS k WHERE k.key_id = m.key_id), 0x),
    m.idempotency_key, m.attributes, CONVERT(varbinary(max), j.result, 2), m.payload
FROM OPENJSON(@list) WITH (id bigint '$[0]', queue_id int '$[1]', token uniqueidentifier '$[2]',
    result nvarchar(max) '$[3]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE m.state = 1 AND m.token = j.token AND m.lease_end > {{now}}
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
