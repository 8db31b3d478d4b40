-- What the decision about a revocation needs, where somebody holds the message. The caller has
-- the lock of the row since an earlier statement. Leans on the primary key.
SELECT {{now}}, m.token, m.worker_id, m.key_id, m.place < 2, m.cancel_requested,
    COALESCE(m.expire_time <= {{now}}, 0), m.attempt, m.max_attempts
FROM message AS m
WHERE m.id = :id AND m.queue_id = :queue_id AND m.state = 1 AND m.lease_end > {{now}}
