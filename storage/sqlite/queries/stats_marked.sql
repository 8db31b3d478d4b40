-- Counts the marked messages that are not finished yet by what their marks say (E12): completed,
-- dead, ready again, and waiting for it.
SELECT count(*) FILTER (WHERE m.outcome = 1), count(*) FILTER (WHERE m.outcome = 3),
       count(*) FILTER (WHERE m.outcome = 2 AND m.settle_time + m.mark_delay <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)),
       count(*) FILTER (WHERE m.outcome = 2 AND m.settle_time + m.mark_delay > CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
FROM marked AS k CROSS JOIN message AS m
WHERE m.position = k.position AND k.queue_id = ?1 AND m.state = 3
