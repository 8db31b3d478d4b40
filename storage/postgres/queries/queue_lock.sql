-- Serializes the making of queues, so that the bound on their number holds exactly.
SELECT pg_advisory_xact_lock(7420742074207421)
