-- Sets aside a row of incoming that can never become a message, so that it blocks nothing.
-- Leans on incoming_order, which it leaves.
UPDATE queuebox.incoming i SET refused = $3::text
WHERE i.xid = $1::text::xid8 AND i.seq = $2::bigint AND i.refused IS NULL
