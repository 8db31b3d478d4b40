-- What the decision about a Retry or Release needs, where the claim holds, and
-- the retry policy of the queue. The write lock is held from before this statement to the
-- commit, so the row stays as it is.
SELECT m.cancel_requested, coalesce(m.expire_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER), 0),
       m.attempt, m.max_attempts, q.retry_min, q.retry_max, q.retry_multiplier, q.retry_jitter, m.key_id
FROM message AS m CROSS JOIN queue AS q ON q.id = m.queue_id
WHERE m.position = ?2 AND m.queue_id = ?1
  AND m.state = 1
  AND m.token = ?3
  AND m.lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
