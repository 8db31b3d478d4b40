-- Which messages committed transactions have marked (E12), with their ordering keys. It passes
-- over what is not committed yet. Walks the primary key from the given number on.
SELECT TOP (@look) k.seq, k.queue_id, k.id, k.key_id
FROM queuebox.marked AS k WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, INDEX (marked_seq))
WHERE k.seq >= @from
ORDER BY k.seq
