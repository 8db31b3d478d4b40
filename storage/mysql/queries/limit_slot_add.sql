-- Counts messages that are leased just now (L1); the caller knows which have no slot. Leans on
-- the primary key.
INSERT INTO claim_slot (queue_id, id)
SELECT :queue_id, j.id FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
