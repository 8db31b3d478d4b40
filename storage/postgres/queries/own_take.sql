-- Takes rows of incoming that have a key ($1, $2: transaction and number), those that nobody
-- else is at, and tells what their keys are. The hash is that of storage.ContentHash. It runs
-- after the statement that locked their ordering keys.
-- Leans on incoming_order.
SELECT i.xid::text, i.seq, i.queue_id, i.ordering_key, i.idempotency_key,
    CASE WHEN i.idempotency_key IS NOT NULL THEN sha256(
        int8send(1) || int8send(octet_length(i.payload)::bigint) || i.payload
        || int8send(octet_length(i.content_type)::bigint) || convert_to(i.content_type, 'UTF8')
        || a.hashed
        || int8send(coalesce(octet_length(i.ordering_key), 0)::bigint) || convert_to(coalesce(i.ordering_key, ''), 'UTF8')
        || int8send(i.priority::bigint) || int8send(i.max_attempts::bigint)
    ) END
FROM unnest($1::text[], $2::bigint[]) AS u (xid, seq)
JOIN queuebox.incoming i ON i.xid = u.xid::xid8 AND i.seq = u.seq AND i.refused IS NULL
CROSS JOIN LATERAL (
    SELECT int8send(count(*)) || coalesce(string_agg(
        int8send(octet_length(e.key)::bigint) || convert_to(e.key, 'UTF8')
        || int8send(octet_length(e.value)::bigint) || convert_to(e.value, 'UTF8'), ''::bytea ORDER BY e.key COLLATE "C"), ''::bytea) AS hashed
    FROM jsonb_each_text(i.attributes) e
) a
FOR UPDATE OF i SKIP LOCKED
