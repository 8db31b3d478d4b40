-- Keeps with a message that the transaction has completed which messages it enqueued with it
-- (S10): queue and position of each, one after the other. The finish time names the partition.
-- Leans on completed_position.
UPDATE queuebox.completed c
SET follow_ups = $4::bigint[]
WHERE c.queue_id = $1::integer AND c.position = $2::bigint AND c.finish_time = $3::timestamptz
