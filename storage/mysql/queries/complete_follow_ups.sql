-- Keeps with a message that the transaction has completed which messages it enqueued with it
-- (S10): queue and position of each. Leans on the primary key.
UPDATE completed SET follow_ups = :follow_ups WHERE id = :id AND queue_id = :queue_id
