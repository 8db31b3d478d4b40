-- Whether there is anything to claim, without a lock (C11): the queue, the earliest of its
-- delayed messages, the first claimable message at or after a place in the order of a claim, and
-- how many of the claim ids were used before (C14).
-- Leans on the primary keys, message_delayed and message_ready, whose order it is.
SELECT {{now}}, q.paused, q.max_in_flight, q.max_claims_per_second,
    (SELECT d.ready_time FROM message AS d FORCE INDEX (message_delayed)
        WHERE d.queue_id = :queue_id AND d.place = 1 ORDER BY d.ready_time, d.id LIMIT 1),
    f.urgency, f.ready_time,
    (SELECT COUNT(*) FROM JSON_TABLE(:claim_ids, '$[*]' COLUMNS (claim_id CHAR(32) PATH '$[0]')) AS j
        STRAIGHT_JOIN claim_call AS c ON c.queue_id = :queue_id AND c.claim_id = UNHEX(j.claim_id))
FROM queue AS q
LEFT JOIN (
    SELECT m.urgency, m.ready_time
    FROM message AS m FORCE INDEX (message_ready)
    WHERE m.queue_id = :queue_id AND m.place = 0 AND m.urgency <= :last_urgency
      AND (m.urgency > :urgency OR (m.urgency = :urgency AND m.ready_time >= :ready_time))
      AND {{claimable}}
    ORDER BY m.urgency, m.ready_time, m.id
    LIMIT 1
) AS f ON TRUE
WHERE q.queue_id = :queue_id
