-- Removes the slots of a queue that does not count its leases any more. Leans on the primary key.
DELETE FROM claim_slot WHERE queue_id = :queue_id
