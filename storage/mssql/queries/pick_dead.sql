-- Those of the listed dead and cancelled messages that are kept and meant, in their order, and
-- whether each blocks its ordering key. It locks nothing, and passes over what somebody else
-- writes; who moves one looks again. Leans on the primary keys and ordering_key_name.
SELECT m.id, m.ordering_key, m.payload_bytes,
    CAST(CASE WHEN m.ordering_key <> 0x AND EXISTS (SELECT 1 FROM queuebox.ordering_key AS k WITH (NOLOCK)
        WHERE k.queue_id = m.queue_id AND k.name = m.ordering_key AND k.blocked_by = m.id * 2 + 1) THEN 1 ELSE 0 END AS bit) AS blocks
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.dead AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) ON m.id = j.id
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = m.queue_id
WHERE m.queue_id = @queue_id
  AND {{kept_dead}}
  AND {{meant_dead}}
ORDER BY m.id
OPTION (FORCE ORDER)
