-- The oldest claim calls after a time and queue, up to another time, in the order of time. The
-- clock was read by an earlier statement. Leans on claim_call_time; takes no lock.
SELECT c.queue_id, c.claim_id, c.claim_time, c.held
FROM claim_call AS c FORCE INDEX (claim_call_time)
WHERE c.claim_time >= :after_time AND c.claim_time <= :until
    AND (c.claim_time > :after_time OR c.queue_id > :after_queue_id)
ORDER BY c.claim_time, c.queue_id
LIMIT :limit
