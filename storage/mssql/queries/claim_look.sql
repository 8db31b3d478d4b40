-- Whether there is anything to claim, without a lock that lasts (C11): the queue, the earliest of
-- its delayed messages, the first claimable message at or after a place in the order of a claim,
-- and how many of the claim ids were used before (C14). What somebody has locked is passed over:
-- a claim could not have it either.
-- Leans on the primary keys, message_delayed and message_ready, whose order it is.
SELECT {{now}} AS now, q.paused, q.max_in_flight, q.max_claims_per_second,
    n.ready_time AS next_ready, f.urgency, f.ready_time,
    (SELECT COUNT(*) FROM OPENJSON(@claim_ids) WITH (claim_id uniqueidentifier '$[0]') AS j
        INNER LOOP JOIN queuebox.claim_call AS c ON c.queue_id = @queue_id AND c.claim_id = j.claim_id) AS known
FROM queuebox.queue AS q WITH (NOLOCK)
OUTER APPLY (
    SELECT TOP (1) d.ready_time
    FROM queuebox.message AS d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, INDEX (message_delayed))
    WHERE d.queue_id = @queue_id AND d.place = 1
    ORDER BY d.ready_time, d.id
) AS n
OUTER APPLY (
    SELECT TOP (1) m.urgency, m.ready_time
    FROM queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, INDEX (message_ready))
    WHERE m.queue_id = @queue_id AND m.place = 0 AND m.urgency >= @urgency AND m.urgency <= @last_urgency
      AND (m.urgency > @urgency OR m.ready_time >= @ready_time)
      AND {{claimable}}
    ORDER BY m.urgency, m.ready_time, m.id
) AS f
WHERE q.queue_id = @queue_id
