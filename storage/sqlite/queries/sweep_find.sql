-- The messages after position ?1 and up to ?2 that nobody holds, and that no claim may take any
-- more (ends), or whose lease is over and which a claim may take (W7). Walks the primary key
-- between the two.
SELECT position, payload_bytes, queue_id, ready_time,
    cancel_requested OR coalesce(expire_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER), 0)
        OR state = 1 AND max_attempts > 0 AND attempt >= max_attempts AS ends
FROM message
WHERE position > ?1 AND position <= ?2
  AND CASE state WHEN 0 THEN 1
                 WHEN 1 THEN lease_end <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
                 ELSE 0 END
  AND (ends OR state = 1 AND place = 0)
ORDER BY position
