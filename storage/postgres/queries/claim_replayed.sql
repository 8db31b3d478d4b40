-- Says that a repeat gets the claims of a call, which ends the right to give them back
-- (C15). No row: the call was given back, so it never happened. Leans on claim_call_pkey.
UPDATE queuebox.claim_call SET replayed = true
WHERE queue_id = $1 AND claim_id = $2 AND worker_id = $3
RETURNING clock_timestamp()
