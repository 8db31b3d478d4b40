-- Those of the listed completed messages that are kept and meant, in their order. It locks
-- nothing; who moves one looks again. Leans on the primary key.
SELECT m.id, m.ordering_key, m.payload_bytes, FALSE
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN completed AS m FORCE INDEX (PRIMARY) ON m.id = j.id
STRAIGHT_JOIN queue AS q ON q.queue_id = m.queue_id
WHERE m.queue_id = :queue_id
  AND {{kept_completed}}
  AND {{meant_completed}}
ORDER BY m.id
