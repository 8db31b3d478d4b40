-- Takes those of the listed rows that nobody else is at; their locks are held until the
-- transaction ends. Leans on the primary key.
SELECT i.id, i.queue_id, i.create_time, i.delay_us, i.available_time, i.expire_time, i.priority, i.max_attempts,
    i.idempotency_key, i.ordering_key, i.wire_bytes, i.content_type, i.attributes, i.payload
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN incoming AS i FORCE INDEX (PRIMARY) ON i.id = j.id
WHERE i.refused IS NULL
FOR UPDATE /*!80000 OF i */ SKIP LOCKED
