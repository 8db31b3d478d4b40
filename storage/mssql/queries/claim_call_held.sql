-- Notes which messages the calls have got, in rows that this transaction has made. Leans on
-- claim_call_id.
UPDATE c
SET held = j.held
FROM OPENJSON(@list) WITH (claim_id uniqueidentifier '$[0]', held varbinary(max) '$[1]') AS j
INNER LOOP JOIN queuebox.claim_call AS c WITH (ROWLOCK) ON c.queue_id = @queue_id AND c.claim_id = j.claim_id;
SELECT @@ROWCOUNT AS changed;
