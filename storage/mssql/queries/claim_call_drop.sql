-- Forgets a call that is given back, unless a repeat has received its claims (C15). A repeat
-- that is running is waited for. Leans on claim_call_id.
DELETE FROM queuebox.claim_call WITH (ROWLOCK)
WHERE queue_id = @queue_id AND claim_id = @claim_id AND replayed = 0;
SELECT @@ROWCOUNT AS changed;
