-- Locks the rows of earlier calls of these claim ids, so that a give-back and a repeat exclude
-- each other (C15). A call that is not committed is waited for. Leans on claim_call_id.
SELECT c.claim_id, c.worker_id, c.replayed, c.held
FROM OPENJSON(@list) WITH (claim_id uniqueidentifier '$[0]') AS j
INNER LOOP JOIN queuebox.claim_call AS c WITH (UPDLOCK, ROWLOCK, FORCESEEK)
    ON c.queue_id = @queue_id AND c.claim_id = j.claim_id
OPTION (FORCE ORDER, MAXDOP 1)
