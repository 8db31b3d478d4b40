-- The rows with a key up to the last one of a batch, in their order, seen once more after the
-- ordering keys are locked (D12): the order of a key is that of the rows which are there by then.
-- It locks nothing and waits for nobody. Walks the primary key between the given ids.
SELECT i.id, i.queue_id, i.ordering_key
FROM incoming AS i FORCE INDEX (PRIMARY)
WHERE i.id BETWEEN :from AND :last AND i.refused IS NULL AND (i.ordering_key <> '' OR i.idempotency_key <> '')
ORDER BY i.id
