-- Removes a claim call.
DELETE FROM claim_call WHERE id = ?1
