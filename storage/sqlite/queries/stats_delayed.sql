-- Counts of the delayed messages: not ready yet, ready by now, and the earliest of those.
-- Leans on message_delayed alone.
SELECT count(*) FILTER (WHERE ready_time > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)),
       count(*) FILTER (WHERE ready_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)),
       min(ready_time) FILTER (WHERE ready_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
FROM message
WHERE queue_id = ?1 AND place = 1
