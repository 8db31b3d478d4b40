-- Removes claim calls; one whose claim id was used anew meanwhile has another time and stays. Leans
-- on the primary key.
DELETE c
FROM OPENJSON(@list) WITH (queue_id int '$[0]', claim_id uniqueidentifier '$[1]', claim_time datetime2(6) '$[2]') AS j
INNER LOOP JOIN queuebox.claim_call AS c WITH (ROWLOCK) ON c.queue_id = j.queue_id AND c.claim_id = j.claim_id
WHERE c.claim_time = j.claim_time
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
