-- Whether a message m in the ready set is claimable now: ready, pending or its lease over, with
-- an attempt left, not expired (E7) and not asked to be cancelled (S14); what is skipped, the
-- sweep ends (C2, C3, C6, C18).
m.ready_time <= {{now}}
      AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= {{now}}))
      AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
      AND m.cancel_requested = 0
      AND (m.expire_time IS NULL OR m.expire_time > {{now}})
