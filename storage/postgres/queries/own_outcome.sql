-- Reads what a claim was settled as (E12): by a mark whose transaction has committed, or by
-- anybody with this token (0 is nobody, 5 an operator who revoked it). One row where it was settled, no row where it was not, or is past
-- the retention of the history. Every placeholder stands once and in order.
-- Leans on message_pkey, settlement_position, completed_position, dead_pkey.
WITH given AS MATERIALIZED (
    SELECT CAST($1 AS text) AS message_id, CAST($2 AS text) AS claim_token
),
bits AS MATERIALIZED (
    SELECT
        (SELECT string_agg(CAST(CAST(strpos('0123456789abcdefghjkmnpqrstvwxyz', c) - 1 AS bit(5)) AS text), '' ORDER BY n)
            FROM unnest(string_to_array(substr(g.message_id, 2), NULL)) WITH ORDINALITY AS u (c, n)
            WHERE length(g.message_id) = 27 AND left(g.message_id, 1) = 'm') AS message_bits,
        (SELECT string_agg(CAST(CAST(strpos('0123456789abcdefghjkmnpqrstvwxyz', c) - 1 AS bit(5)) AS text), '' ORDER BY n)
            FROM unnest(string_to_array(substr(g.claim_token, 2), NULL)) WITH ORDINALITY AS u (c, n)
            WHERE length(g.claim_token) = 33 AND left(g.claim_token, 1) = 't') AS token_bits
    FROM given g
),
named AS MATERIALIZED (
    SELECT CAST(CAST(substr(b.message_bits, 1, 32) AS bit(32)) AS integer) AS queue_id,
        CAST(CAST(substr(b.message_bits, 33, 64) AS bit(64)) AS bigint) AS position,
        CAST(lpad(to_hex(CAST(CAST(substr(b.token_bits, 1, 64) AS bit(64)) AS bigint)), 16, '0')
            || lpad(to_hex(CAST(CAST(substr(b.token_bits, 65, 64) AS bit(64)) AS bigint)), 16, '0') AS uuid) AS token
    FROM bits b
),
found AS MATERIALIZED (
    SELECT m.outcome, m.mark_dead_reason AS dead_reason, m.settle_time,
        m.settle_time + m.mark_delay_us * interval '1 microsecond' AS available_time
    FROM queuebox.message m
    WHERE m.queue_id = 0 /* queue_id */
      AND m.position = (SELECT n.position FROM named n WHERE n.queue_id = 0 /* queue_id */)
      AND m.state = 3 AND m.token = (SELECT n.token FROM named n)
    UNION ALL
    SELECT s.outcome, s.dead_reason, s.settle_time, s.available_time
    FROM queuebox.settlement s
    WHERE s.queue_id = 0 /* queue_id */
      AND s.position = (SELECT n.position FROM named n WHERE n.queue_id = 0 /* queue_id */)
      AND s.token = (SELECT n.token FROM named n) AND s.action <> 5
    UNION ALL
    SELECT 1, 0, c.finish_time, NULL
    FROM queuebox.completed c
    WHERE c.queue_id = 0 /* queue_id */
      AND c.position = (SELECT n.position FROM named n WHERE n.queue_id = 0 /* queue_id */)
      AND c.token = (SELECT n.token FROM named n)
    UNION ALL
    SELECT CASE d.state WHEN 5 THEN 5 ELSE 3 END, d.dead_reason, d.finish_time, NULL
    FROM queuebox.dead d
    WHERE d.queue_id = 0 /* queue_id */
      AND d.position = (SELECT n.position FROM named n WHERE n.queue_id = 0 /* queue_id */)
      AND d.token = (SELECT n.token FROM named n) AND d.action NOT IN (0, 5)
)
SELECT CASE f.outcome WHEN 1 THEN 'COMPLETED' WHEN 2 THEN 'RETRIED' WHEN 3 THEN 'DEAD' WHEN 4 THEN 'RELEASED' ELSE 'CANCELLED' END AS outcome,
    CASE f.dead_reason WHEN 1 THEN 'REJECTED' WHEN 2 THEN 'ATTEMPTS_EXHAUSTED' WHEN 4 THEN 'EXPIRED' ELSE '' END AS dead_reason,
    f.settle_time, f.available_time
FROM found f
LIMIT 1
