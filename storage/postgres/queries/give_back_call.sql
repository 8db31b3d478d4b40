-- As give_back.sql, for a call that had a claim id: what a repeat has received stays with
-- it, all of it (C15). The row of the call decides; a repeat that is running is waited for.
-- Leans on claim_call_pkey and message_pkey.
WITH gone AS MATERIALIZED (
    DELETE FROM queuebox.claim_call c
    WHERE c.queue_id = $1 AND c.claim_id = $4 AND NOT c.replayed
    RETURNING 1
),
locked AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.lease_end
    FROM unnest($2::bigint[], $3::uuid[]) AS u (position, token)
    JOIN queuebox.message m ON m.queue_id = $1 AND m.position = u.position
        AND CASE WHEN m.token = u.token THEN m.state = 1 ELSE false END
    WHERE EXISTS (SELECT 1 FROM gone)
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
