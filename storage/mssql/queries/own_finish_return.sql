-- Puts marked messages back, each ready or delayed as its mark says; nothing becomes claimable
-- before the given time, since a claim may start its scan behind it. The transaction has the
-- locks of the rows. Leans on the primary key.
UPDATE m
SET place = CASE WHEN a.at > @now THEN 1 ELSE 0 END, ready_time = CASE WHEN a.at > @now THEN a.at ELSE @now END,
    last_error = m.mark_error, reason_code = COALESCE(m.mark_reason_code, N''),
    state = 0, token = NULL, lease_end = NULL, claim_time = NULL, lease_us = NULL,
    outcome = NULL, mark_action = NULL, mark_dead_reason = NULL, settle_time = NULL, mark_delay_us = NULL,
    mark_error = NULL, mark_reason_code = NULL, mark_result = NULL
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id
CROSS APPLY (SELECT DATEADD(microsecond, CAST(m.mark_delay_us % 1000000 AS int),
    DATEADD(second, CAST(m.mark_delay_us / 1000000 AS int), m.settle_time)) AS at) AS a
WHERE m.state = 3 AND m.outcome = 2
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
