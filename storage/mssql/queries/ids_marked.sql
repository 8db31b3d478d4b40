-- The messages of a queue that transactions of others have marked and no server has finished yet
-- (E12), the newest @limit. The table is small. Walks marked_seq; a mark that is not committed is
-- none yet.
SELECT TOP (@limit) m.id
FROM queuebox.marked AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE m.queue_id = @queue_id
ORDER BY m.seq DESC;
