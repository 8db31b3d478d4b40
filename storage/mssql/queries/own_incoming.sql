-- What committed transactions of others have enqueued (E12), in the order in which it is placed.
-- It passes over what is not committed yet. Walks the primary key from the given id on.
SELECT TOP (@look) i.id, i.queue_id, i.ordering_key,
    CAST(CASE WHEN i.idempotency_key <> 0x THEN 1 ELSE 0 END AS bit) AS idempotent, i.wire_bytes
FROM queuebox.incoming AS i WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, INDEX (incoming_id))
WHERE i.id >= @from AND i.refused IS NULL
ORDER BY i.id
