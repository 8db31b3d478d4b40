-- The first row that is there, committed or not; where somebody has it locked, it fails at once.
-- Walks the primary key from the given id on.
SELECT i.id FROM incoming AS i FORCE INDEX (PRIMARY)
WHERE i.id >= :from AND i.refused IS NULL
ORDER BY i.id LIMIT 1
FOR UPDATE NOWAIT
