-- The next ?2 dead and cancelled messages of a queue after position ?1. Leans on dead_queue.
SELECT position FROM dead WHERE queue_id = ?3 AND position > ?1 ORDER BY position LIMIT ?2
