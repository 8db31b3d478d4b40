-- Those of the dead and cancelled messages ?10, after position ?2, that are kept and meant, in
-- their order. Leans on the primary key.
SELECT m.position, m.payload_bytes, m.ordering_key
FROM json_each(?10) AS j CROSS JOIN dead AS m CROSS JOIN queue AS q ON q.id = m.queue_id
WHERE m.position = j.value AND m.queue_id = ?1 AND m.position > ?2
  AND CASE WHEN m.state = 5 THEN m.finish_time + q.completed_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
           WHEN q.dead_retention = 0 THEN 1
           ELSE m.finish_time + q.dead_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) END
  AND (json_array_length(?3) = 0 OR m.state IN (SELECT value FROM json_each(?3)))
  AND (json_array_length(?11) = 0 OR m.dead_reason IN (SELECT value FROM json_each(?11)))
  AND (?4 = '' OR m.ordering_key = ?4)
  AND {{filter}}
ORDER BY m.position
