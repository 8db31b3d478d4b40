-- The mark (E12), the same for the three ways to settle. The statement holds the write lock of the
-- file from its begin on, so that what is judged is what is there (S13). A trigger appends the
-- message to marked. No row: the claim is lost, roll back.
{{own_named}},
judged AS (
    SELECT m.position AS at, m.attempt, n.action, n.delay_ms, n.error, n.reason_code, n.result, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) AS now,
           CASE WHEN n.action = 1 THEN 1 WHEN n.action = 3 THEN 3 WHEN m.cancel_requested THEN 5
                WHEN m.expire_time <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) THEN 3
                WHEN m.max_attempts > 0 AND m.attempt >= m.max_attempts THEN 3 ELSE 2 END AS outcome,
           CASE WHEN n.action = 1 THEN 0 WHEN n.action = 3 THEN 1 WHEN m.cancel_requested THEN 0
                WHEN m.expire_time <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) THEN 4
                WHEN m.max_attempts > 0 AND m.attempt >= m.max_attempts THEN 2 ELSE 0 END AS dead_reason
    FROM named AS n CROSS JOIN message AS m
    WHERE m.position = n.position AND m.queue_id = 0 /* queue_id */
      AND m.state = 1 AND hex(m.token) = n.token AND m.lease_end > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
),
-- The policy of the queue: min * multiplier ^ (attempt - 1), never above max.
grown (n, v) AS (
    SELECT 1, CAST(retry_min AS REAL) FROM queue WHERE id = 0 /* queue_id */
    UNION ALL
    SELECT n + 1, v * (SELECT retry_multiplier FROM queue WHERE id = 0 /* queue_id */)
    FROM grown WHERE n < (SELECT attempt FROM judged) AND n < 1000 AND v < (SELECT retry_max FROM queue WHERE id = 0 /* queue_id */)
),
policy AS (
    SELECT CAST(min(q.retry_max, (SELECT v FROM grown ORDER BY n DESC LIMIT 1))
        * (1 - q.retry_jitter * (random() & 9007199254740991) / 9007199254740992.0) AS INTEGER) AS delay
    FROM queue AS q WHERE q.id = 0 /* queue_id */
),
decided AS (
    SELECT j.*,
        CASE WHEN j.outcome = 2 THEN min(max(coalesce(j.delay_ms, (SELECT delay FROM policy)), 0), 315360000000) END AS wait,
        -- At most 2000 bytes, cut where a character begins (S9).
        CASE WHEN length(CAST(j.error AS BLOB)) <= 2000 THEN j.error
            ELSE CAST(substr(CAST(j.error AS BLOB), 1, CASE
                WHEN hex(substr(CAST(j.error AS BLOB), 2001, 1)) NOT BETWEEN '80' AND 'BF' THEN 2000
                WHEN hex(substr(CAST(j.error AS BLOB), 2000, 1)) NOT BETWEEN '80' AND 'BF' THEN 1999
                WHEN hex(substr(CAST(j.error AS BLOB), 1999, 1)) NOT BETWEEN '80' AND 'BF' THEN 1998
                ELSE 1997 END) AS TEXT) END AS cut
    FROM judged AS j
)
UPDATE message
SET (state, lease_end, outcome, mark_action, mark_dead_reason, settle_time, mark_delay, mark_error, mark_reason_code, mark_result) =
    (SELECT 3, 9223372036854775807, d.outcome, d.action, d.dead_reason, d.now, d.wait, d.cut, d.reason_code, d.result FROM decided AS d)
WHERE position = (SELECT at FROM judged)
RETURNING CASE outcome WHEN 1 THEN 'COMPLETED' WHEN 2 THEN 'RETRIED' WHEN 3 THEN 'DEAD' ELSE 'CANCELLED' END AS outcome,
    CASE mark_dead_reason WHEN 1 THEN 'REJECTED' WHEN 2 THEN 'ATTEMPTS_EXHAUSTED' WHEN 4 THEN 'EXPIRED' ELSE '' END AS dead_reason,
    settle_time, settle_time + mark_delay AS available_time
