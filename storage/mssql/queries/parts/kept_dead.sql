-- Whether a dead or cancelled message m of the queue q has not passed its retention: cancelled
-- ones are kept as long as completed ones, and a dead retention of 0 is for ever.
m.finish_time > CASE
        WHEN m.state = 5 THEN DATEADD(microsecond, -CAST(q.completed_retention_us % 1000000 AS int),
            DATEADD(second, -CAST(q.completed_retention_us / 1000000 AS int), {{now}}))
        WHEN q.dead_retention_us = 0 THEN CAST('0001-01-01' AS datetime2(6))
        ELSE DATEADD(microsecond, -CAST(q.dead_retention_us % 1000000 AS int),
            DATEADD(second, -CAST(q.dead_retention_us / 1000000 AS int), {{now}})) END
