-- Removes the live rows that complete_copy or settle_dead has copied. Leans on the primary key.
DELETE FROM message WHERE position IN (SELECT value FROM json_each(?1))
