-- Copies to the dead ones those of the listed messages that nobody holds and that end without
-- a settlement: all of them as cancelled where ?2 is set, else those that were asked to be
-- cancelled (S14), that have expired (E7), or whose last attempt ran out (C18). The token is
-- kept and the action is 0, so that the last holder is told that he lost the claim, and not
-- that he settled it. What it returns, complete_delete removes in the same transaction.
-- Leans on the primary key.
INSERT INTO dead (position, queue_id, state, finish_time, token, action, dead_reason, attempt, max_attempts, priority, ready_time,
                  create_time, expire_time, worker_id, last_error, reason_code, content_type, idempotency_key,
                  ordering_key, wire_bytes, attributes, payload_bytes, payload)
SELECT m.position, m.queue_id,
       CASE WHEN ?2 OR m.cancel_requested THEN 5 ELSE 4 END,
       CAST(round(unixepoch('subsec') * 1000) AS INTEGER), m.token, 0,
       CASE WHEN ?2 OR m.cancel_requested THEN 0
            WHEN m.expire_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) THEN 4
            ELSE 3 END,
       m.attempt, m.max_attempts, m.priority, m.ready_time,
       m.create_time, m.expire_time, m.worker_id, m.last_error, m.reason_code, m.content_type, m.idempotency_key,
       coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = m.key_id), ''), m.wire_bytes, m.attributes, m.payload_bytes, m.payload
FROM json_each(?1) AS j
CROSS JOIN message AS m
WHERE m.position = j.value
  AND CASE m.state WHEN 0 THEN 1
                   WHEN 1 THEN m.lease_end <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
                   ELSE 0 END
  AND (?2 OR m.cancel_requested OR m.expire_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
       OR m.state = 1 AND m.max_attempts > 0 AND m.attempt >= m.max_attempts)
RETURNING position, state, dead_reason
