-- Removes the live rows that complete_copy_run has copied: all at the positions ?1 to ?2. Leans
-- on the primary key.
DELETE FROM message WHERE position BETWEEN ?1 AND ?2
