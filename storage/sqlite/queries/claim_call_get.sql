-- The call that has this claim id. Leans on the unique index.
SELECT id, worker_id, replayed, held FROM claim_call WHERE queue_id = ?1 AND claim_id = ?2
