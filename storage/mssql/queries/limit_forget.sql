-- Removes the slots of a queue that does not count its leases any more. Leans on claim_slot_number.
DELETE FROM queuebox.claim_slot WHERE queue_id = @queue_id;
SELECT @@ROWCOUNT AS changed;
