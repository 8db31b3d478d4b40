-- Removes slots of messages that are not leased any more. Leans on the primary key.
DELETE s
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN claim_slot AS s ON s.queue_id = :queue_id AND s.id = j.id
