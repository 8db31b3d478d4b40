-- The leases of messages after renew, under their locks. Leans on the primary key.
SELECT {{now}} AS now, j.ord, m.lease_end, m.cancel_requested
FROM OPENJSON(@list) WITH (ord int '$[0]', id bigint '$[1]') AS j
INNER LOOP JOIN queuebox.message AS m ON m.id = j.id
