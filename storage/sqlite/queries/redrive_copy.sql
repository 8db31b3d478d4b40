-- Copies the dead messages ?1, which the caller has picked under the write lock, to the live
-- ones, each with its position and its attempts. The first one is ready in ?2 nanoseconds and
-- each following one ?3 later. ?4 attempts are allowed on top of those made; 0 takes the setting
-- of the queue, where 0 is no limit. An expire time that has passed is dropped, or the message
-- would die at once. One with an ordering key is parked: promote makes it the head where it comes
-- first (O7). A claim that ended by itself (action 0) leaves its token in the row, so
-- that its holder is told that his lease ran out; what was settled stands in the history.
-- Leans on the primary keys, and on the unique index of the ordering keys.
INSERT INTO message (position, queue_id, place, priority, ready_time, key_id, token, attempt, max_attempts, worker_id,
                     create_time, expire_time, wire_bytes, last_error, reason_code, content_type, idempotency_key,
                     attributes, payload_bytes, payload)
SELECT d.position, d.queue_id,
       CASE WHEN d.ordering_key <> '' THEN 2 WHEN (?2 + j.key * ?3) / 1000000 > 0 THEN 1 ELSE 0 END, d.priority,
       CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + (?2 + j.key * ?3) / 1000000,
       CASE WHEN d.ordering_key <> '' THEN (SELECT k.id FROM ordering_key AS k WHERE k.queue_id = d.queue_id AND k.key = d.ordering_key) END,
       iif(d.action = 0, d.token, NULL), d.attempt,
       CASE WHEN ?4 > 0 THEN min(d.attempt + ?4, 2147483647)
            WHEN q.max_attempts > 0 THEN min(d.attempt + q.max_attempts, 2147483647)
            ELSE 0 END,
       d.worker_id, d.create_time,
       iif(d.expire_time > CAST(round(unixepoch('subsec') * 1000) AS INTEGER), d.expire_time, NULL),
       d.wire_bytes, d.last_error, d.reason_code, d.content_type, d.idempotency_key,
       d.attributes, d.payload_bytes, d.payload
FROM json_each(?1) AS j CROSS JOIN dead AS d CROSS JOIN queue AS q ON q.id = d.queue_id
WHERE d.position = j.value
