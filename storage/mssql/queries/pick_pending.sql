-- Those of the listed live messages that nobody holds and that are meant, in their order:
-- neither processing, whatever the lease says, nor settling. It locks nothing, and passes over
-- what somebody else writes; who moves one looks again. Leans on the primary keys.
SELECT m.id, COALESCE((SELECT k.name FROM queuebox.ordering_key AS k WITH (NOLOCK) WHERE k.key_id = m.key_id), 0x) AS ordering_key,
    m.payload_bytes, CAST(0 AS bit) AS blocks
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) ON m.id = j.id
WHERE m.queue_id = @queue_id AND m.state = 0
  AND {{meant_live}}
ORDER BY m.id
OPTION (FORCE ORDER)
