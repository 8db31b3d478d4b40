-- The messages after one id and up to another that nobody holds, and that are over (ends), or whose
-- lease is over and which a claim may take (W7): @now was read by an earlier statement. Walks the
-- primary key between the two; a row that
-- somebody has locked is looked at the next time.
SELECT p.id, p.queue_id, p.key_id, p.payload_bytes, p.ready_time, p.ends
FROM (
    SELECT m.id, m.queue_id, m.key_id, m.payload_bytes, m.ready_time, m.state, m.place,
        CASE WHEN {{over}} THEN 1 ELSE 0 END AS ends
    FROM queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
    WHERE m.id > @after AND m.id <= @last
        AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= @now))
) AS p
WHERE p.ends = 1 OR (p.state = 1 AND p.place = 0)
ORDER BY p.id;
