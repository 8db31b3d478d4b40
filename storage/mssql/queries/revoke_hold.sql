-- What the decision about a revocation needs, where somebody holds the message. The caller has
-- the lock of the row since an earlier statement. Leans on the primary key.
SELECT {{now}} AS now, m.token, m.worker_id, m.key_id, CAST(CASE WHEN m.place < 2 THEN 1 ELSE 0 END AS bit) AS head,
    m.cancel_requested, CAST(CASE WHEN m.expire_time <= {{now}} THEN 1 ELSE 0 END AS bit) AS expired,
    m.attempt, m.max_attempts
FROM queuebox.message AS m WITH (UPDLOCK, ROWLOCK)
WHERE m.id = @id AND m.queue_id = @queue_id AND m.state = 1 AND m.lease_end > {{now}}
