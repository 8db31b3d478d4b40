-- The state of a message, live or finished and kept; no row where there is none.
-- Leans on the primary keys.
SELECT CASE WHEN state = 3
            THEN CASE outcome WHEN 1 THEN 2 WHEN 3 THEN 4 WHEN 5 THEN 5 ELSE 0 END
            ELSE state END
FROM message WHERE position = ?2 AND queue_id = ?1
UNION ALL
SELECT 2 FROM completed AS c CROSS JOIN queue AS q ON q.id = c.queue_id
WHERE c.position = ?2 AND c.queue_id = ?1
  AND c.finish_time + q.completed_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
UNION ALL
SELECT d.state FROM dead AS d CROSS JOIN queue AS q ON q.id = d.queue_id
WHERE d.position = ?2 AND d.queue_id = ?1
  AND CASE WHEN d.state = 5 THEN d.finish_time + q.completed_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
           WHEN q.dead_retention = 0 THEN 1
           ELSE d.finish_time + q.dead_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) END
LIMIT 1
