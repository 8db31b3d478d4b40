-- Notes that a repeat has received the claims of these calls, so that they are never given back
-- (C15). The caller has locked the rows. Leans on claim_call_id.
UPDATE c
SET replayed = 1
FROM OPENJSON(@list) WITH (claim_id uniqueidentifier '$[0]') AS j
INNER LOOP JOIN queuebox.claim_call AS c WITH (ROWLOCK) ON c.queue_id = @queue_id AND c.claim_id = j.claim_id
WHERE c.replayed = 0;
SELECT @@ROWCOUNT AS changed;
