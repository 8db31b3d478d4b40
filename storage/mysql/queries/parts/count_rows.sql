-- What {{count_columns}} needs of a live message m.
m.id, m.queue_id, m.place, m.state, m.outcome, m.lease_end,
        CASE WHEN m.state = 3 AND m.outcome = 2 THEN m.settle_time + INTERVAL m.mark_delay_us MICROSECOND
            ELSE m.ready_time END AS ready_time,
        CASE WHEN m.state = 0 AND (m.expire_time IS NULL OR m.expire_time > :now) THEN 1
            WHEN m.state = 3 AND m.outcome IN (2, 4) THEN 1 ELSE 0 END AS pending
