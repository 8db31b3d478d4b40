-- The queue does not count its leases any more.
DELETE FROM claim_slot WHERE queue_id = ?1
