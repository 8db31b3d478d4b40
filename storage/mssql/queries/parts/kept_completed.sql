-- Whether a completed message m of the queue q has not passed its retention. DATEADD takes an
-- int, so a duration is added in seconds and microseconds.
m.finish_time > DATEADD(microsecond, -CAST(q.completed_retention_us % 1000000 AS int),
        DATEADD(second, -CAST(q.completed_retention_us / 1000000 AS int), {{now}}))
