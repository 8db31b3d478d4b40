-- The end of a message that is finished and kept, to say why a fence did not hold.
SELECT 2, c.token, c.finish_time, 1, 0, c.follow_ups FROM completed AS c CROSS JOIN queue AS q ON q.id = c.queue_id
WHERE c.position = ?2 AND c.queue_id = ?1
  AND c.finish_time + q.completed_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
UNION ALL
SELECT d.state, d.token, d.finish_time, d.action, d.dead_reason, NULL FROM dead AS d CROSS JOIN queue AS q ON q.id = d.queue_id
WHERE d.position = ?2 AND d.queue_id = ?1
  AND CASE WHEN d.state = 5 THEN d.finish_time + q.completed_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
           WHEN q.dead_retention = 0 THEN 1
           ELSE d.finish_time + q.dead_retention > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) END
LIMIT 1
