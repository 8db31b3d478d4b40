-- Whether a dead or cancelled message m of the queue q has not passed its retention: cancelled
-- ones are kept as long as completed ones, and a dead retention of 0 is for ever.
CASE WHEN m.state = 5 THEN m.finish_time > {{now}} - INTERVAL q.completed_retention_us MICROSECOND
        WHEN q.dead_retention_us = 0 THEN TRUE
        ELSE m.finish_time > {{now}} - INTERVAL q.dead_retention_us MICROSECOND END
