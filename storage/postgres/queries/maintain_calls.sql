-- Removes rows of claim calls that are older than an hour and of which no claim is held any
-- more (a repeat would be an empty answer, which it then is as a new claim too). $1 bounds
-- the batch. Rows that somebody else holds wait for the next time.
-- Leans on claim_call_time and message_pkey.
WITH old AS MATERIALIZED (
    SELECT c.queue_id, c.claim_id
    FROM queuebox.claim_call c
    WHERE c.claim_time < statement_timestamp() - interval '1 hour'
      AND NOT EXISTS (
        SELECT 1
        FROM unnest(c.positions, c.tokens) AS held (position, token)
        JOIN queuebox.message m ON m.queue_id = c.queue_id AND m.position = held.position
        WHERE m.token = held.token AND m.state IN (1, 3)
      )
    ORDER BY c.claim_time
    LIMIT $1
    FOR UPDATE OF c SKIP LOCKED
)
DELETE FROM queuebox.claim_call c USING old
WHERE c.queue_id = old.queue_id AND c.claim_id = old.claim_id
