-- Forgets calls that got nothing or are given back, unless a repeat has received what they got
-- (C15). A repeat that is running is waited for. Leans on claim_call_id.
DELETE c
FROM OPENJSON(@list) WITH (claim_id uniqueidentifier '$[0]') AS j
INNER LOOP JOIN queuebox.claim_call AS c WITH (ROWLOCK) ON c.queue_id = @queue_id AND c.claim_id = j.claim_id
WHERE c.replayed = 0;
SELECT @@ROWCOUNT AS changed;
