-- Copies the listed dead messages, which the transaction has locked, to the live ones, each with
-- its id and its attempts, ready so many microseconds after the given time. max_attempts are
-- allowed on top of those made; 0 takes the setting of the queue, where 0 is no limit. An expire
-- time that has passed is dropped, or the message would die at once. One with an ordering key,
-- which the list names, is parked: promote makes it the head where it comes first (O7). A claim
-- that ended by itself (action 0) leaves its token in the row, so that its holder is told that
-- his lease ran out; what was settled stands in the history. IDENTITY_INSERT needs a login that
-- may alter the table, as the one that migrates may. Leans on the primary keys.
SET IDENTITY_INSERT queuebox.message ON;
INSERT INTO queuebox.message (id, queue_id, place, urgency, ready_time, create_time, expire_time, key_id, token, attempt,
    max_attempts, payload_bytes, wire_bytes, worker_id, last_error, reason_code, content_type, idempotency_key, attributes, payload)
SELECT d.id, d.queue_id, CASE WHEN j.key_id > 0 THEN 2 WHEN j.delay_us > 0 THEN 1 ELSE 0 END, -CAST(d.priority AS bigint),
    DATEADD(microsecond, CAST(j.delay_us % 1000000 AS int), DATEADD(second, CAST(j.delay_us / 1000000 AS int), @now)),
    d.create_time, CASE WHEN d.expire_time > @now THEN d.expire_time END,
    NULLIF(j.key_id, 0), CASE WHEN d.action = 0 THEN d.token END, d.attempt,
    CASE WHEN a.allowed = 0 THEN 0 WHEN d.attempt + a.allowed > 2147483647 THEN 2147483647 ELSE d.attempt + a.allowed END,
    d.payload_bytes, d.wire_bytes, d.worker_id, d.last_error, d.reason_code, d.content_type, d.idempotency_key, d.attributes, d.payload
FROM OPENJSON(@list) WITH (id bigint '$[0]', delay_us bigint '$[1]', key_id bigint '$[2]') AS j
INNER LOOP JOIN queuebox.dead AS d ON d.id = j.id
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = d.queue_id
CROSS APPLY (SELECT CAST(CASE WHEN @max_attempts > 0 THEN @max_attempts ELSE q.max_attempts END AS bigint) AS allowed) AS a
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
SET IDENTITY_INSERT queuebox.message OFF;
