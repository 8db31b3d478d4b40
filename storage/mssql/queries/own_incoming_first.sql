-- The first row that is there, committed or not; where somebody has it locked, it fails at once.
-- Walks the primary key from the given id on.
SELECT TOP (1) i.id FROM queuebox.incoming AS i WITH (UPDLOCK, ROWLOCK, NOWAIT, INDEX (incoming_id))
WHERE i.id >= @from AND i.refused IS NULL
ORDER BY i.id
