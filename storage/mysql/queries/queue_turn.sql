-- Locks the right to make a queue, so that the limit of their number holds across servers. Leans
-- on the primary key, one row.
SELECT t.id FROM count_turn AS t WHERE t.id = 3
FOR UPDATE
