-- Keeps with a completed message which messages its completion enqueued (S10): ?2 lists queue
-- and position of each. Leans on the primary key.
UPDATE completed SET follow_ups = ?2 WHERE position = ?1
