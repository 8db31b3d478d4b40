-- Gives claims back whose caller never had them: attempt refunded, claimable at once, no
-- trace in the history. Rows that somebody else holds stay as they are.
-- Leans on message_pkey.
WITH locked AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.lease_end
    FROM unnest($2::bigint[], $3::uuid[]) AS u (position, token)
    JOIN queuebox.message m ON m.queue_id = $1 AND m.position = u.position
        AND CASE WHEN m.token = u.token THEN m.state = 1 ELSE false END
    FOR UPDATE OF m SKIP LOCKED
),
released AS (
    UPDATE queuebox.message m
    SET state = 0, place = 0, ready_time = clock_timestamp(), attempt = m.attempt - 1,
        token = NULL, lease_end = NULL, claim_time = NULL, lease_ms = NULL
    FROM locked l
    WHERE m.queue_id = l.queue_id AND m.position = l.position AND l.lease_end > clock_timestamp()
    RETURNING 1
)
SELECT clock_timestamp(), (SELECT count(*) FROM released)
