-- Notes, in the transaction that changed a queue, what of it is limited. Where leases are
-- counted from now on, those that run must be looked for. Leans on queue_name_key.
INSERT INTO queuebox.claim_limit AS l (queue_id, in_flight, set_time, fill_time)
SELECT q.queue_id, q.max_in_flight > 0, clock_timestamp(), clock_timestamp()
FROM queuebox.queue q
WHERE q.name = $1::text
  AND (q.max_in_flight > 0 OR q.max_claims_per_second > 0
    OR EXISTS (SELECT 1 FROM queuebox.claim_limit o WHERE o.queue_id = q.queue_id))
ON CONFLICT (queue_id) DO UPDATE
SET in_flight = excluded.in_flight, set_time = excluded.set_time, fill_time = excluded.fill_time
WHERE l.in_flight <> excluded.in_flight
