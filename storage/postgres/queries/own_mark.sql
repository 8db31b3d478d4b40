-- The mark (E12), the same for the three ways to settle, whose heads stand before it. It runs
-- in a transaction of a worker, at any isolation level and under any settings. The row is
-- locked first, then the fence (id, state, token, lease) is judged of the row that the lock
-- returned: a fence on the outer row leaks (docs/own-transaction.md). State 3 takes the
-- message out of every other fence; a lease end that never comes is the second lock. Every
-- value that the finisher needs is decided here. No row: the claim is lost, roll back.
-- Every placeholder stands once and in order, so that a driver of another style can number
-- them anew; no percent sign, no colon and no question mark, for the same reason.
-- Leans on message_pkey and queue_pkey. HOT: nothing that it writes to message is indexed.
bits AS MATERIALIZED (
    SELECT g.*,
        (SELECT string_agg(CAST(CAST(strpos('0123456789abcdefghjkmnpqrstvwxyz', c) - 1 AS bit(5)) AS text), '' ORDER BY n)
            FROM unnest(string_to_array(substr(g.message_id, 2), NULL)) WITH ORDINALITY AS u (c, n)
            WHERE length(g.message_id) = 27 AND left(g.message_id, 1) = 'm') AS message_bits,
        (SELECT string_agg(CAST(CAST(strpos('0123456789abcdefghjkmnpqrstvwxyz', c) - 1 AS bit(5)) AS text), '' ORDER BY n)
            FROM unnest(string_to_array(substr(g.claim_token, 2), NULL)) WITH ORDINALITY AS u (c, n)
            WHERE length(g.claim_token) = 33 AND left(g.claim_token, 1) = 't') AS token_bits
    FROM given g
),
named AS MATERIALIZED (
    SELECT b.action, CASE WHEN b.delay_ms IS NOT NULL THEN least(greatest(b.delay_ms, 0), 315360000000) * 1000 END AS delay_us,
        -- What is too large fails the statement, with a text that says so.
        CASE WHEN octet_length(b.result) > 1048576 /* max_payload_bytes */
            THEN CAST('result of ' || octet_length(b.result) || ' bytes is too large' AS integer) ELSE 0 END AS too_large,
        CASE WHEN octet_length(b.reason_code) > 255
            THEN CAST('reason_code of ' || octet_length(b.reason_code) || ' bytes is too long' AS integer) ELSE 0 END AS too_long,
        b.result, nullif(b.reason_code, '') AS reason_code, nullif(b.error, '') AS error, convert_to(b.error, 'UTF8') AS raw,
        CAST(CAST(substr(b.message_bits, 1, 32) AS bit(32)) AS integer) AS queue_id,
        CAST(CAST(substr(b.message_bits, 33, 64) AS bit(64)) AS bigint) AS position,
        CAST(lpad(to_hex(CAST(CAST(substr(b.token_bits, 1, 64) AS bit(64)) AS bigint)), 16, '0')
            || lpad(to_hex(CAST(CAST(substr(b.token_bits, 65, 64) AS bit(64)) AS bigint)), 16, '0') AS uuid) AS token
    FROM bits b
),
locked AS MATERIALIZED (
    SELECT m.queue_id, m.position, m.state, m.token, m.lease_end, m.attempt, m.max_attempts, m.expire_time, m.cancel_requested
    FROM queuebox.message m
    WHERE m.queue_id = 0 /* queue_id */
      AND m.position = (SELECT n.position + n.too_large + n.too_long FROM named n WHERE n.queue_id = 0 /* queue_id */)
    FOR UPDATE
),
-- One clock for all that is judged of the row, read when its lock is held.
timed AS MATERIALIZED (
    SELECT l.*, clock_timestamp() AS now FROM locked l
),
judged AS MATERIALIZED (
    SELECT t.queue_id, t.position, t.now, t.attempt, n.action, n.delay_us, n.result, n.reason_code,
        -- At most 2000 bytes, cut where a character begins (S9).
        CASE WHEN octet_length(n.raw) <= 2000 THEN n.error
            ELSE convert_from(substring(n.raw FROM 1 FOR CASE WHEN get_byte(n.raw, 2000) & 192 <> 128 THEN 2000
                WHEN get_byte(n.raw, 1999) & 192 <> 128 THEN 1999 WHEN get_byte(n.raw, 1998) & 192 <> 128 THEN 1998
                ELSE 1997 END), 'UTF8') END AS error,
        CASE WHEN n.action = 1 THEN 1
            WHEN n.action = 3 THEN 3
            WHEN t.cancel_requested THEN 5
            WHEN t.expire_time <= t.now THEN 3
            WHEN t.max_attempts > 0 AND t.attempt >= t.max_attempts THEN 3
            ELSE 2 END AS outcome,
        CASE WHEN n.action = 1 THEN 0
            WHEN n.action = 3 THEN 1
            WHEN t.cancel_requested THEN 0
            WHEN t.expire_time <= t.now THEN 4
            WHEN t.max_attempts > 0 AND t.attempt >= t.max_attempts THEN 2
            ELSE 0 END AS dead_reason
    FROM timed t CROSS JOIN named n
    WHERE t.state = 1 AND t.token = n.token AND t.lease_end > t.now
),
-- A retry without a delay takes the policy of its queue, as in settle.sql.
decided AS MATERIALIZED (
    SELECT j.*,
        CASE WHEN j.outcome = 2 THEN coalesce(j.delay_us, (
            SELECT CASE WHEN q.retry_min_us <= 0 OR q.retry_multiplier <= 0 THEN 0
                ELSE round((1 - q.retry_jitter * random()) * least(q.retry_max_us,
                    q.retry_min_us * exp(least(600, greatest(-600, (j.attempt - 1) * ln(q.retry_multiplier)))))) END
            FROM queuebox.queue q WHERE q.queue_id = 0 /* queue_id */
        )) END AS wait_us
    FROM judged j
),
marked AS (
    UPDATE queuebox.message m
    SET state = 3, lease_end = 'infinity', outcome = d.outcome, mark_action = d.action, mark_dead_reason = d.dead_reason,
        settle_time = d.now, mark_delay_us = d.wait_us, mark_error = d.error, mark_reason_code = d.reason_code,
        mark_result = d.result
    FROM decided d
    WHERE m.queue_id = d.queue_id AND m.position = d.position
    RETURNING m.queue_id, m.position, m.outcome, m.mark_dead_reason, m.settle_time, m.mark_delay_us
),
listed AS (
    INSERT INTO queuebox.marked (queue_id, position) SELECT k.queue_id, k.position FROM marked k
)
SELECT CASE k.outcome WHEN 1 THEN 'COMPLETED' WHEN 2 THEN 'RETRIED' WHEN 3 THEN 'DEAD' ELSE 'CANCELLED' END AS outcome,
    CASE k.mark_dead_reason WHEN 1 THEN 'REJECTED' WHEN 2 THEN 'ATTEMPTS_EXHAUSTED' WHEN 4 THEN 'EXPIRED' ELSE '' END AS dead_reason,
    k.settle_time, k.settle_time + k.mark_delay_us * interval '1 microsecond' AS available_time
FROM marked k
