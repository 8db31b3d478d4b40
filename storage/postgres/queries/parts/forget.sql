-- What a statement deletes besides the rows that it has locked: the idempotency keys that still
-- name them, and their settlement history. A message whose key somebody else holds stays. A
-- settlement is looked for in the hours from the making of the message until now, and one more on
-- either side: a clock may have been set. Which message a key names is read as a value: behind an OR,
-- PostgreSQL 18 answers NOT EXISTS by reading all keys there are, once.
keys AS MATERIALIZED (
    SELECT k.queue_id, k.key, k.position
    FROM locked l
    JOIN queuebox.idempotency_key k ON k.queue_id = l.queue_id AND k.key = l.idempotency_key AND k.position = l.position
    FOR UPDATE OF k SKIP LOCKED
),
going AS MATERIALIZED (
    SELECT l.* FROM locked l
    WHERE l.idempotency_key IS NULL
       OR EXISTS (SELECT 1 FROM keys k WHERE k.position = l.position)
       OR (SELECT k.position FROM queuebox.idempotency_key k
           WHERE k.queue_id = l.queue_id AND k.key = l.idempotency_key) IS DISTINCT FROM l.position
),
freed AS (
    DELETE FROM queuebox.idempotency_key k USING keys
    WHERE k.queue_id = keys.queue_id AND k.key = keys.key
),
history AS (
    DELETE FROM queuebox.settlement s USING going g
    WHERE s.queue_id = g.queue_id AND s.position = g.position AND s.settle_time >= g.create_time - interval '1 hour'
      AND s.settle_time <= statement_timestamp() + interval '1 hour'
),
