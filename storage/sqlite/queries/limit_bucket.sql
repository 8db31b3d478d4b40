-- The bucket of a queue (L2). Leans on the primary key.
SELECT rate, full_ns FROM claim_pace WHERE queue_id = ?1
