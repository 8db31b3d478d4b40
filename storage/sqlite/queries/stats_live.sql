-- Counts of the live messages by what a claim would find. Leans on message_ready and
-- message_delayed for the rows of the queue. One whose expire time has passed is not ready (E7).
SELECT count(*) FILTER (WHERE state = 0 AND (expire_time IS NULL OR expire_time > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AND ready_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)),
       count(*) FILTER (WHERE state = 0 AND ready_time > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)),
       count(*) FILTER (WHERE state = 1 AND lease_end > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)),
       count(*) FILTER (WHERE state = 1 AND lease_end <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)),
       min(ready_time) FILTER (WHERE state = 0 AND (expire_time IS NULL OR expire_time > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) AND ready_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)),
       CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
FROM message
WHERE queue_id = ?1 AND place = 0
