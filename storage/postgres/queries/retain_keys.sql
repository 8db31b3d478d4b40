-- Frees the idempotency keys of the next $1 completed messages of an hour ($2 to $3) after ($4, $5),
-- where they still name them (E5), before the hour is dropped. Tells how many keys somebody
-- else holds, and where to go on. Only that partition is looked at.
-- Leans on completed_position, idempotency_key_pkey.
WITH lock AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(7420742074207423) AS had),
page AS MATERIALIZED (
    SELECT c.queue_id, c.position, c.idempotency_key
    FROM queuebox.completed c
    WHERE c.finish_time >= $2::timestamptz AND c.finish_time < $3::timestamptz
      AND (c.queue_id, c.position) > ($4::integer, $5::bigint)
      AND (SELECT had FROM lock)
    ORDER BY c.queue_id, c.position
    LIMIT $1::bigint
),
named AS MATERIALIZED (
    SELECT k.queue_id, k.key
    FROM page p
    JOIN queuebox.idempotency_key k ON k.queue_id = p.queue_id AND k.key = p.idempotency_key AND k.position = p.position
),
keys AS MATERIALIZED (
    SELECT k.queue_id, k.key
    FROM page p
    JOIN queuebox.idempotency_key k ON k.queue_id = p.queue_id AND k.key = p.idempotency_key AND k.position = p.position
    FOR UPDATE OF k SKIP LOCKED
),
freed AS (
    DELETE FROM queuebox.idempotency_key k USING keys
    WHERE k.queue_id = keys.queue_id AND k.key = keys.key
)
SELECT lock.had, (SELECT count(*) FROM named) - (SELECT count(*) FROM keys), last.queue_id, last.position
FROM lock
LEFT JOIN LATERAL (
    SELECT p.queue_id, p.position FROM page p
    WHERE (SELECT count(*) FROM page) >= $1::bigint
    ORDER BY p.queue_id DESC, p.position DESC LIMIT 1
) last ON true
