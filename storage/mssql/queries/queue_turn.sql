-- Locks the right to make a queue, so that the limit of their number holds across servers. Leans
-- on the primary key, one row.
SELECT t.id FROM queuebox.count_turn AS t WITH (UPDLOCK, ROWLOCK) WHERE t.id = 3;
