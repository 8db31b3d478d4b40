-- Those of the listed completed messages that are kept and meant, in their order. It locks
-- nothing, and passes over what somebody else writes; who moves one looks again.
-- Leans on the primary key.
SELECT m.id, m.ordering_key, m.payload_bytes, CAST(0 AS bit) AS blocks
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.completed AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) ON m.id = j.id
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = m.queue_id
WHERE m.queue_id = @queue_id
  AND {{kept_completed}}
  AND {{meant_completed}}
ORDER BY m.id
OPTION (FORCE ORDER)
