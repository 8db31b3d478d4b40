-- Those of the completed messages ?10, after position ?2, that are kept and meant, in their
-- order. Leans on the primary key.
SELECT m.position, m.payload_bytes, m.ordering_key
FROM json_each(?10) AS j CROSS JOIN completed AS m CROSS JOIN queue AS q ON q.id = m.queue_id
WHERE m.position = j.value AND m.queue_id = ?1 AND m.position > ?2
  AND m.finish_time + q.completed_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
  AND (json_array_length(?3) = 0 OR 2 IN (SELECT value FROM json_each(?3)))
  AND (?4 = '' OR m.ordering_key = ?4)
  AND {{filter}}
  AND json_array_length(?11) = 0
ORDER BY m.position
