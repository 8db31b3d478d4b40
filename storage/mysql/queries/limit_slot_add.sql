-- New slots for messages that are leased just now (L1). Leans on the primary key.
INSERT INTO claim_slot (queue_id, slot, id)
SELECT :queue_id, j.slot, j.id
FROM JSON_TABLE(:list, '$[*]' COLUMNS (slot INT PATH '$[0]', id BIGINT PATH '$[1]')) AS j
