-- One narrow row for each call with a claim id, before it looks for messages (C14).
-- claim_call_id is what two running calls of one id meet at.
INSERT INTO queuebox.claim_call (queue_id, claim_id, claim_time, worker_id, held)
SELECT @queue_id, j.claim_id, {{now}}, j.worker_id, 0x
FROM OPENJSON(@list) WITH (claim_id uniqueidentifier '$[0]', worker_id nvarchar(255) '$[1]') AS j;
SELECT @@ROWCOUNT AS changed;
