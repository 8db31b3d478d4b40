-- Which live messages m no claim may take any more and nobody holds, as far as a look without a
-- lock can tell: end_lock judges it.
(m.cancel_requested = 1 OR m.expire_time <= @now
        OR (m.state = 1 AND m.max_attempts > 0 AND m.attempt >= m.max_attempts))
    AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= @now))
