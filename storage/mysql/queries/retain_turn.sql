-- Tries for the lock that makes one server at a time remove what has passed its retention; no row
-- where another one has it. Leans on the primary key.
SELECT t.id FROM count_turn AS t WHERE t.id = 2
FOR UPDATE SKIP LOCKED
