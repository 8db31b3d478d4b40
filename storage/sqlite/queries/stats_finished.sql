-- Counts of what is finished and kept. Leans on completed_finish and dead_finish.
SELECT (SELECT count(*) FROM completed WHERE queue_id = q.id AND finish_time > CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - q.completed_retention),
       (SELECT count(*) FROM dead WHERE queue_id = q.id AND state = 4
           AND finish_time > CASE WHEN q.dead_retention = 0 THEN -1 ELSE CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - q.dead_retention END)
FROM queue AS q
WHERE q.id = ?1
