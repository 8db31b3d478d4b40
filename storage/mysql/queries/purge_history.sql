-- Removes the settlement history of purged messages. Leans on the primary key.
DELETE m FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN settlement AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.queue_id = :queue_id
