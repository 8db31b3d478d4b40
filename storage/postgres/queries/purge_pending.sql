-- Deletes those of the messages $10 of a queue that nobody holds, neither as a claim nor in a
-- transaction, and that are meant by the filter still, with their idempotency keys and their
-- history: the row that the lock returned is judged again. One
-- with an ordering key goes where the transaction has the lock of the key; promote.sql lets the
-- key go on.
-- Leans on message_pkey, ordering_key_pkey, idempotency_key_pkey, settlement_position.
WITH mine AS MATERIALIZED (
    SELECT string_to_array(current_setting('queuebox.keys', true), ',')::bigint[] AS ids
),
locked AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.create_time, m.idempotency_key
    FROM unnest($10::bigint[]) AS u (position)
    JOIN queuebox.message m ON m.queue_id = $1::integer AND m.position = u.position
    CROSS JOIN LATERAL (
        SELECT m.position, m.state, 0::smallint AS dead_reason,
            (SELECT k.name FROM queuebox.ordering_key k WHERE k.key_id = m.key_id) AS ordering_key,
            m.reason_code, m.last_error, m.worker_id, m.create_time
    ) a
    WHERE m.state = 0 AND (m.key_id IS NULL OR m.key_id = ANY ((SELECT k.ids FROM mine k)::bigint[]))
      AND {{filter}}
    FOR UPDATE OF m SKIP LOCKED
),
{{forget}}
gone AS (
    DELETE FROM queuebox.message m USING going g
    WHERE m.queue_id = g.queue_id AND m.position = g.position
    RETURNING 1
)
SELECT clock_timestamp(), (SELECT count(*) FROM gone)
