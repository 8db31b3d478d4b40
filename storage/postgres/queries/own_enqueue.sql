-- Enqueues in the caller's own transaction (E12): appends to incoming, and the server makes a
-- message of it after the commit. A queue that is gone makes queue_id null, which the table
-- refuses; constraints of the table refuse what is too large or too long, by their names.
-- Only $1 must not be null. Every placeholder stands once and in order.
-- Leans on queue_pkey.
WITH given AS MATERIALIZED (
    SELECT CAST($1 AS bytea) AS payload, CAST($2 AS text) AS content_type, CAST(CAST($3 AS text) AS jsonb) AS attributes,
        CAST($4 AS text) AS idempotency_key, CAST($5 AS text) AS ordering_key, CAST($6 AS integer) AS priority,
        CAST($7 AS bigint) AS delay_ms, CAST($8 AS timestamptz) AS available_time, CAST($9 AS integer) AS max_attempts,
        CAST($10 AS timestamptz) AS expire_time
),
sized AS MATERIALIZED (
    SELECT g.*, coalesce(a.entries, 0) AS entries, coalesce(a.bytes, 0) AS bytes
    FROM given g LEFT JOIN LATERAL (
        SELECT count(*) AS entries, sum(octet_length(e.key) + octet_length(e.value)) AS bytes
        FROM jsonb_each_text(g.attributes) e
    ) a ON true
)
INSERT INTO queuebox.incoming (queue_id, priority, max_attempts, delay_us, available_time, expire_time, create_time,
    content_type, ordering_key, idempotency_key, wire_bytes, payload_limit, attribute_count, attribute_bytes, attributes, payload)
SELECT (SELECT q.queue_id FROM queuebox.queue q WHERE q.queue_id = 0 /* queue_id */),
    coalesce(s.priority, 0), coalesce(s.max_attempts, 0), s.delay_ms * 1000, s.available_time, s.expire_time, clock_timestamp(),
    coalesce(s.content_type, ''), nullif(s.ordering_key, ''), nullif(s.idempotency_key, ''),
    octet_length(s.payload) + 3277 /* queue_name */ + coalesce(octet_length(s.content_type), 0)
        + coalesce(octet_length(s.idempotency_key), 0) + coalesce(octet_length(s.ordering_key), 0) + s.bytes + 16 * s.entries,
    1048576 /* max_payload_bytes */, s.entries, s.bytes, s.attributes, s.payload
FROM sized s
