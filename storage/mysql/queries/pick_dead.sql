-- Those of the listed dead and cancelled messages that are kept and meant, in their order, and
-- whether each blocks its ordering key. It locks nothing; who moves one looks again.
-- Leans on the primary keys and ordering_key_name.
SELECT m.id, m.ordering_key, m.payload_bytes,
    m.ordering_key <> '' AND EXISTS (SELECT 1 FROM ordering_key AS k
        WHERE k.queue_id = m.queue_id AND k.name = m.ordering_key AND k.blocked_by = m.id * 2 + 1)
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN dead AS m FORCE INDEX (PRIMARY) ON m.id = j.id
STRAIGHT_JOIN queue AS q ON q.queue_id = m.queue_id
WHERE m.queue_id = :queue_id
  AND {{kept_dead}}
  AND {{meant_dead}}
ORDER BY m.id
