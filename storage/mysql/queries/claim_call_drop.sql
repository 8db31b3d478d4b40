-- Forgets a call that is given back, unless a repeat has received its claims (C15). Leans on the
-- primary key.
DELETE FROM claim_call WHERE queue_id = :queue_id AND claim_id = :claim_id AND replayed = 0
