-- Makes the row of the limit of a queue, where another one has not done so just now: the lock on
-- the key that is not there yet lasts to the end of the transaction. Leans on claim_limit_queue.
INSERT INTO queuebox.claim_limit (queue_id, in_flight, set_time, fill_time)
SELECT @queue_id, @in_flight, {{now}}, {{now}}
WHERE NOT EXISTS (
    SELECT 1 FROM queuebox.claim_limit AS l WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE l.queue_id = @queue_id);
SELECT @@ROWCOUNT AS changed;
