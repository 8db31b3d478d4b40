-- Locks those of the listed live messages of a queue that nobody holds, neither as a claim nor
-- in a transaction, and that are meant still, and tells what keys each has: the row that the
-- lock returned is judged. Leans on the primary keys.
SELECT m.id, m.idempotency_key,
    COALESCE((SELECT k.name FROM queuebox.ordering_key AS k WITH (NOLOCK) WHERE k.key_id = m.key_id), 0x) AS ordering_key
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (UPDLOCK, READPAST, ROWLOCK) ON m.id = j.id
WHERE m.queue_id = @queue_id AND m.state = 0
  AND {{meant_live}}
OPTION (FORCE ORDER)
