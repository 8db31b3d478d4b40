-- The slots of a queue with what their messages are, read after the lock of the limit: 2 where
-- the message is leased or settling, 1 where its lease looks over, 0 where it is neither or gone.
-- Leans on the primary keys; takes no lock.
SELECT s.slot, s.id,
    CASE m.state WHEN 3 THEN 2 WHEN 1 THEN CASE WHEN m.lease_end > {{now}} THEN 2 ELSE 1 END ELSE 0 END AS held,
    CASE m.state WHEN 1 THEN m.lease_end END AS lease_end
FROM claim_slot AS s FORCE INDEX (PRIMARY) LEFT JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE s.queue_id = :queue_id
