-- Counts messages that are leased just now (L1); the caller knows which have no slot. Leans on
-- claim_slot_id.
INSERT INTO queuebox.claim_slot (queue_id, id)
SELECT @queue_id, j.id FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j;
SELECT @@ROWCOUNT AS changed;
