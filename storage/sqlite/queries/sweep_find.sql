-- The messages after position ?1 and up to ?2 that nobody holds and no claim may take any
-- more. Walks the primary key between the two.
SELECT position, payload_bytes FROM message
WHERE position > ?1 AND position <= ?2
  AND CASE state WHEN 0 THEN 1
                 WHEN 1 THEN lease_end <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
                 ELSE 0 END
  AND (cancel_requested OR expire_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
       OR state = 1 AND max_attempts > 0 AND attempt >= max_attempts)
ORDER BY position
