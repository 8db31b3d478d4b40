-- What the decision about a revocation needs, where the claim holds. The write lock is held
-- from before this statement to the commit, so the row stays as it is. Leans on the primary key.
SELECT token, worker_id, cancel_requested, coalesce(expire_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER), 0), attempt, max_attempts
FROM message
WHERE position = ?2 AND queue_id = ?1
  AND state = 1
  AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
