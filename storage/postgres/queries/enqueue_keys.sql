-- Draws positions for the items, in their order, odd ones for those with an ordering key (whose
-- lock the transaction has by now), and takes the idempotency keys that
-- nobody has. A key of an open transaction is waited for, as long as lock_timeout says
-- (E6). Keys are taken in one order everywhere, so that two batches cannot deadlock.
-- Leans on idempotency_key_pkey.
WITH item AS MATERIALIZED (
    SELECT s.*, nextval('queuebox.message_position') + CASE WHEN s.ordered THEN 1 ELSE 0 END AS position
    FROM (
        SELECT u.* FROM unnest($1::integer[], $2::text[], $3::bytea[], $4::boolean[])
            WITH ORDINALITY AS u (queue_id, key, content_hash, ordered, ord)
        ORDER BY u.ord
    ) s
),
wanted AS (
    SELECT DISTINCT ON (queue_id, key COLLATE "C") queue_id, key, content_hash, position
    FROM item
    WHERE key <> ''
    ORDER BY queue_id, key COLLATE "C", ord
),
taken AS (
    INSERT INTO queuebox.idempotency_key (queue_id, key, position, create_time, content_hash)
    SELECT queue_id, key, position, clock_timestamp(), content_hash
    FROM wanted
    ORDER BY queue_id, key COLLATE "C"
    ON CONFLICT (queue_id, key) DO NOTHING
    RETURNING 1
)
SELECT ord, position, (SELECT count(*) FROM taken) FROM item
