-- Removes the dead rows that redrive_copy has copied. Leans on the primary key.
DELETE FROM dead WHERE position IN (SELECT value FROM json_each(?1))
