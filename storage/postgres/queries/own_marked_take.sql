-- Takes marks for this server, those that no other one is at. Their locks are held until the
-- transaction ends.
-- Leans on marked_order.
SELECT k.xid::text, k.seq, k.queue_id, k.position
FROM unnest($1::text[], $2::bigint[]) AS u (xid, seq)
JOIN queuebox.marked k ON k.xid = u.xid::xid8 AND k.seq = u.seq
FOR UPDATE OF k SKIP LOCKED
