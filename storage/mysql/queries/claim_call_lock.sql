-- Locks the rows of earlier calls of these claim ids, so that a give-back and a repeat exclude
-- each other (C15). A call that is not committed is waited for. Leans on the primary key.
SELECT c.claim_id, c.worker_id, c.replayed, c.held
FROM JSON_TABLE(:list, '$[*]' COLUMNS (claim_id CHAR(32) PATH '$[0]')) AS j
STRAIGHT_JOIN claim_call AS c FORCE INDEX (PRIMARY) ON c.queue_id = :queue_id AND c.claim_id = UNHEX(j.claim_id)
FOR UPDATE /*!80000 OF c */
