-- Locks the limit of a queue: claims of it stand in line, across servers. Locked only, never
-- updated by a claim. Leans on claim_limit_pkey.
SELECT l.queue_id FROM queuebox.claim_limit l WHERE l.queue_id = $1::integer FOR UPDATE
