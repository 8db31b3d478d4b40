-- Copies the listed dead messages, which the transaction has locked, to the live ones, each with
-- its id and its attempts, ready so many microseconds after the given time. max_attempts are
-- allowed on top of those made; 0 takes the setting of the queue, where 0 is no limit. An expire
-- time that has passed is dropped, or the message would die at once. One with an ordering key,
-- which the list names, is parked: promote makes it the head where it comes first (O7). A claim
-- that ended by itself (action 0) leaves its token in the row, so that its holder is told that
-- his lease ran out; what was settled stands in the history. Leans on the primary keys.
INSERT INTO message (id, queue_id, place, urgency, ready_time, create_time, expire_time, key_id, token, attempt,
    max_attempts, payload_bytes, wire_bytes, worker_id, last_error, reason_code, content_type, idempotency_key, attributes, payload)
SELECT d.id, d.queue_id, CASE WHEN j.key_id > 0 THEN 2 WHEN j.delay_us > 0 THEN 1 ELSE 0 END, -d.priority,
    :now + INTERVAL j.delay_us MICROSECOND, d.create_time, CASE WHEN d.expire_time > :now THEN d.expire_time END,
    NULLIF(j.key_id, 0), CASE WHEN d.action = 0 THEN d.token END, d.attempt,
    CASE WHEN :max_attempts > 0 THEN LEAST(d.attempt + :max_attempts, 2147483647)
        WHEN q.max_attempts > 0 THEN LEAST(d.attempt + q.max_attempts, 2147483647) ELSE 0 END,
    d.payload_bytes, d.wire_bytes, d.worker_id, d.last_error, d.reason_code, d.content_type, d.idempotency_key, d.attributes, d.payload
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', delay_us BIGINT PATH '$[1]', key_id BIGINT PATH '$[2]')) AS j
STRAIGHT_JOIN dead AS d FORCE INDEX (PRIMARY) ON d.id = j.id
STRAIGHT_JOIN queue AS q ON q.queue_id = d.queue_id
