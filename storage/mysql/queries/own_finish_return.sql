-- Puts marked messages back, each ready or delayed as its mark says; nothing becomes claimable
-- before the given time, since a claim may start its scan behind it. The transaction has the
-- locks of the rows. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.place = IF(m.settle_time + INTERVAL m.mark_delay_us MICROSECOND > :now, 1, 0),
    m.ready_time = GREATEST(m.settle_time + INTERVAL m.mark_delay_us MICROSECOND, :now),
    m.last_error = m.mark_error, m.reason_code = COALESCE(m.mark_reason_code, ''),
    m.state = 0, m.token = NULL, m.lease_end = NULL, m.claim_time = NULL, m.lease_us = NULL,
    m.outcome = NULL, m.mark_action = NULL, m.mark_dead_reason = NULL, m.settle_time = NULL, m.mark_delay_us = NULL,
    m.mark_error = NULL, m.mark_reason_code = NULL, m.mark_result = NULL
WHERE m.state = 3 AND m.outcome = 2
