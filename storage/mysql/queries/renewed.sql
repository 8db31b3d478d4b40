-- The leases of messages after renew, under their locks. Leans on the primary key.
SELECT {{now}}, j.ord, m.lease_end, m.cancel_requested
FROM JSON_TABLE(:list, '$[*]' COLUMNS (ord INT PATH '$[0]', id BIGINT PATH '$[1]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
