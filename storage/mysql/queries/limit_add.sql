-- Makes the row of the limit of a queue, where another one has not done so just now. Leans on
-- the primary key.
INSERT INTO claim_limit (queue_id, in_flight, set_time, fill_time)
VALUES (:queue_id, :in_flight, {{now}}, {{now}})
ON DUPLICATE KEY UPDATE queue_id = claim_limit.queue_id
