-- Those of the messages after one id and up to another that are over: @now was read by an earlier
-- statement. A row that somebody has locked is looked at the next time. Walks the primary key between the two.
SELECT m.id, m.queue_id, m.key_id, m.payload_bytes
FROM queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE m.id > @after AND m.id <= @last
    AND {{over}}
ORDER BY m.id;
