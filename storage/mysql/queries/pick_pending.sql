-- Those of the listed live messages that nobody holds and that are meant, in their order:
-- neither processing, whatever the lease says, nor settling. It locks nothing; who moves one
-- looks again. Leans on the primary keys.
SELECT m.id, COALESCE((SELECT k.name FROM ordering_key AS k WHERE k.key_id = m.key_id), ''), m.payload_bytes, FALSE
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.queue_id = :queue_id AND m.state = 0
  AND {{meant_live}}
ORDER BY m.id
