-- Enqueues in the caller's own transaction (E12): appends to incoming, and the server makes a
-- message of it after the commit. A queue that is gone makes queue_id NULL, which the table
-- refuses. Only the payload must not be NULL; times are milliseconds since the epoch. Every
-- placeholder stands once and in order, and INSERT comes first, since there are drivers that
-- begin a transaction by themselves only before such a statement.
-- Leans on the primary key.
INSERT INTO incoming (queue_id, create_time, delay, available_time, expire_time, priority, max_attempts, idempotency_key,
    ordering_key, wire_bytes, payload_limit, content_type, attributes, payload)
WITH given AS (
    SELECT CAST(? AS BLOB) AS payload, CAST(coalesce(?, '') AS TEXT) AS content_type, ? AS attributes,
        CAST(coalesce(?, '') AS TEXT) AS idempotency_key, CAST(coalesce(?, '') AS TEXT) AS ordering_key,
        coalesce(?, 0) AS priority, ? AS delay_ms, ? AS available_time, coalesce(?, 0) AS max_attempts, ? AS expire_time
)
SELECT (SELECT id FROM queue WHERE id = 0 /* queue_id */), CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), delay_ms, available_time, expire_time,
    priority, max_attempts, idempotency_key, ordering_key,
    length(payload) + 3277 /* queue_name */ + length(CAST(content_type AS BLOB)) + length(CAST(idempotency_key AS BLOB))
        + length(CAST(ordering_key AS BLOB))
        + coalesce((SELECT sum(length(CAST(key AS BLOB)) + length(CAST(value AS BLOB)) + 16) FROM json_each(given.attributes)), 0),
    1048576 /* max_payload_bytes */, content_type, attributes, payload
FROM given
