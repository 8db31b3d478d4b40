-- The slots of a queue with what their messages are, read after the lock of the limit: 2 where
-- the message is leased, settling or locked by somebody, 1 where its lease looks over, 0 where it
-- is neither or gone. A row that somebody has locked, such as an open transaction of a worker, is
-- not waited for: it counts. One that cannot be seen at all is gone, or just being deleted by a
-- server, whose transactions are short: that alone is waited for. Leans on claim_slot_number and
-- message_id.
SELECT s.slot, s.id,
    CASE WHEN m.id IS NULL AND (o.id IS NOT NULL OR w.id IS NOT NULL) THEN 2
        WHEN m.state = 3 THEN 2
        WHEN m.state = 1 AND m.lease_end > {{now}} THEN 2
        WHEN m.state = 1 THEN 1
        ELSE 0 END AS held,
    CASE m.state WHEN 1 THEN m.lease_end END AS lease_end
FROM queuebox.claim_slot AS s
LEFT OUTER LOOP JOIN queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) ON m.id = s.id
OUTER APPLY (
    SELECT TOP (1) d.id FROM queuebox.message AS d WITH (NOLOCK) WHERE d.id = s.id AND m.id IS NULL) AS o
OUTER APPLY (
    SELECT TOP (1) d.id FROM queuebox.message AS d WITH (READCOMMITTEDLOCK, ROWLOCK)
    WHERE d.id = s.id AND m.id IS NULL AND o.id IS NULL) AS w
WHERE s.queue_id = @queue_id;
