-- Those of the listed messages, pairs of queue and position, that nobody holds and no claim
-- may take any more. Leans on the primary key.
SELECT m.position, m.payload_bytes
FROM json_each(?1) AS j
CROSS JOIN message AS m
WHERE m.position = json_extract(j.value, '$[1]') AND m.queue_id = json_extract(j.value, '$[0]')
  AND CASE m.state WHEN 0 THEN 1
                   WHEN 1 THEN m.lease_end <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
                   ELSE 0 END
  AND (m.cancel_requested OR m.expire_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
       OR m.state = 1 AND m.max_attempts > 0 AND m.attempt >= m.max_attempts)
