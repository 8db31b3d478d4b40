-- Locks the limit of a queue and reads its bucket, and whether leases are to be looked for that
-- were granted while nobody counted: claims of the queue stand in line, across servers. Nobody
-- reads an older version of this row, so it may be written at every claim. Leans on the primary
-- key.
SELECT l.in_flight, l.rate, l.full_ns, COALESCE(l.fill_time <= {{now}}, FALSE) AS due
FROM claim_limit AS l
WHERE l.queue_id = :queue_id
FOR UPDATE
