-- Finds the earlier calls of claim ids (C14). Leans on claim_call_pkey.
SELECT c.claim_id, c.worker_id
FROM queuebox.claim_call c
WHERE c.queue_id = $1 AND c.claim_id = ANY ($2::uuid[])
