-- New slots for messages that are leased just now (L1). Leans on claim_slot_number.
INSERT INTO queuebox.claim_slot (queue_id, slot, id)
SELECT @queue_id, j.slot, j.id FROM OPENJSON(@list) WITH (slot int '$[0]', id bigint '$[1]') AS j;
SELECT @@ROWCOUNT AS changed;
