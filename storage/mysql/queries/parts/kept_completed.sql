-- Whether a completed message m of the queue q has not passed its retention.
m.finish_time > {{now}} - INTERVAL q.completed_retention_us MICROSECOND
