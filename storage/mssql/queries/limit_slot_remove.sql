-- Removes slots of messages that are not leased any more. Leans on claim_slot_id.
DELETE s
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.claim_slot AS s WITH (ROWLOCK) ON s.queue_id = @queue_id AND s.id = j.id
WHERE s.queue_id = @queue_id;
SELECT @@ROWCOUNT AS changed;
