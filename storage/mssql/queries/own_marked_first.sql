-- The first mark that is there, committed or not; where somebody has it locked, it fails at once.
-- Walks the primary key from the given number on.
SELECT TOP (1) k.seq FROM queuebox.marked AS k WITH (UPDLOCK, ROWLOCK, NOWAIT, INDEX (marked_seq))
WHERE k.seq >= @from
ORDER BY k.seq
