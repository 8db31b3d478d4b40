-- Reads what a claim was settled as (E12): by a mark whose transaction has committed, or by
-- anybody with this token. One row where it was settled, no row where it was not, or is past
-- the retention of the history. Every placeholder stands once and in order.
-- Leans on the primary keys.
WITH RECURSIVE given AS (
    SELECT ? AS message_id, ? AS claim_token
),
{{own_named}},
found AS (
    SELECT m.outcome, m.mark_dead_reason AS dead_reason, m.settle_time, m.settle_time + m.mark_delay AS available_time
    FROM named AS n CROSS JOIN message AS m
    WHERE m.position = n.position AND m.queue_id = 0 /* queue_id */ AND m.state = 3 AND hex(m.token) = n.token
    UNION ALL
    SELECT s.outcome, s.dead_reason, s.settle_time, s.ready_time
    FROM named AS n CROSS JOIN settlement AS s
    WHERE s.position = n.position AND s.queue_id = 0 /* queue_id */ AND hex(s.token) = n.token AND s.action <> 5
    UNION ALL
    SELECT 1, 0, c.finish_time, NULL
    FROM named AS n CROSS JOIN completed AS c
    WHERE c.position = n.position AND c.queue_id = 0 /* queue_id */ AND hex(c.token) = n.token
    UNION ALL
    SELECT CASE d.state WHEN 5 THEN 5 ELSE 3 END, d.dead_reason, d.finish_time, NULL
    FROM named AS n CROSS JOIN dead AS d
    WHERE d.position = n.position AND d.queue_id = 0 /* queue_id */ AND hex(d.token) = n.token AND d.action NOT IN (0, 5)
)
SELECT CASE outcome WHEN 1 THEN 'COMPLETED' WHEN 2 THEN 'RETRIED' WHEN 3 THEN 'DEAD' WHEN 4 THEN 'RELEASED' ELSE 'CANCELLED' END AS outcome,
    CASE dead_reason WHEN 1 THEN 'REJECTED' WHEN 2 THEN 'ATTEMPTS_EXHAUSTED' WHEN 4 THEN 'EXPIRED' ELSE '' END AS dead_reason,
    settle_time, available_time
FROM found
LIMIT 1
