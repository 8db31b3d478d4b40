-- Notes, in the transaction that changed a queue, whether its leases are counted from now on;
-- those that run then are looked for at the next claim. Leans on the primary key.
UPDATE claim_limit
SET in_flight = :in_flight, set_time = {{now}}, fill_time = {{now}}
WHERE queue_id = :queue_id
