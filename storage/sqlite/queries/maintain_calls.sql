-- The oldest claim calls after id ?1 that are more than an hour old, ?2 at most, in the order of time.
SELECT id, queue_id, held FROM claim_call
WHERE id > ?1 AND claim_time < CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - 3600000
ORDER BY id
LIMIT ?2
