-- The rows with a key up to the last one of a batch, in their order, seen once more after the
-- ordering keys are locked (D12): the order of a key is that of the rows which are there by then.
-- It passes over what is not committed yet, and that is enough: a row that was committed before
-- another one was begun is seen by this look, where the look before has seen the other, and an
-- id beyond the last of that look is not asked for. Walks the primary key between the given ids.
SELECT i.id, i.queue_id, i.ordering_key
FROM queuebox.incoming AS i WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, INDEX (incoming_id))
WHERE i.id BETWEEN @from AND @last AND i.refused IS NULL AND (i.ordering_key <> 0x OR i.idempotency_key <> 0x)
ORDER BY i.id
