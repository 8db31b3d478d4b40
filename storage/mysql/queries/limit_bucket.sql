-- The bucket of a queue after a claim (L2). The caller has locked the row. Leans on the primary
-- key.
UPDATE claim_limit SET rate = :rate, full_ns = :full_ns WHERE queue_id = :queue_id
