-- Those of the live messages ?10, after position ?2, that nobody holds and that are meant, in
-- their order: neither processing, whatever the lease says, nor settling. Leans on the primary key.
SELECT m.position, m.payload_bytes, coalesce((SELECT k.key FROM ordering_key AS k WHERE k.id = m.key_id), '')
FROM json_each(?10) AS j CROSS JOIN message AS m
WHERE m.position = j.value AND m.queue_id = ?1 AND m.position > ?2
  AND m.state = 0
  AND (json_array_length(?3) = 0 OR 0 IN (SELECT value FROM json_each(?3)))
  AND (?4 = '' OR m.key_id = (SELECT k.id FROM ordering_key AS k WHERE k.queue_id = ?1 AND k.key = ?4))
  AND {{filter}}
  AND json_array_length(?11) = 0
ORDER BY m.position
