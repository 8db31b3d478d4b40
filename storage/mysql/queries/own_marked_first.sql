-- The first mark that is there, committed or not; where somebody has it locked, it fails at once.
-- Walks the primary key from the given number on.
SELECT k.seq FROM marked AS k FORCE INDEX (PRIMARY)
WHERE k.seq >= :from
ORDER BY k.seq LIMIT 1
FOR UPDATE NOWAIT
