-- One narrow row for each call with a claim id that got messages (C14). claim_call_id is the
-- guard against two running calls of one id.
INSERT INTO queuebox.claim_call (queue_id, claim_id, claim_time, worker_id, held)
SELECT @queue_id, j.claim_id, {{now}}, j.worker_id, j.held
FROM OPENJSON(@list) WITH (claim_id uniqueidentifier '$[0]', worker_id nvarchar(255) '$[1]',
    held varbinary(max) '$[2]') AS j;
SELECT @@ROWCOUNT AS changed;
