-- Gives slots whose messages are not leased any more to those that are leased just now (L1). The
-- transaction has the lock of the limit. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (slot INT PATH '$[0]', id BIGINT PATH '$[1]')) AS j
STRAIGHT_JOIN claim_slot AS s FORCE INDEX (PRIMARY) ON s.queue_id = :queue_id AND s.slot = j.slot
SET s.id = j.id
