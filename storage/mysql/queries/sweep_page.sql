-- Those of the messages after one id and up to another that are over: :now was read by an earlier
-- statement. Walks the primary key between the two; takes no lock.
SELECT m.id, m.queue_id, m.key_id, m.payload_bytes
FROM message AS m FORCE INDEX (PRIMARY)
WHERE m.id > :after AND m.id <= :last
    AND {{over}}
ORDER BY m.id
