-- Gives slots whose messages are not leased any more to those that are leased just now (L1). The
-- transaction has the lock of the limit. Leans on claim_slot_number.
UPDATE s
SET id = j.id
FROM OPENJSON(@list) WITH (slot int '$[0]', id bigint '$[1]') AS j
INNER LOOP JOIN queuebox.claim_slot AS s WITH (ROWLOCK) ON s.queue_id = @queue_id AND s.slot = j.slot
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
