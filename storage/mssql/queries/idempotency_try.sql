-- Locks idempotency keys as idempotency_lock does, and fails where somebody else has one of
-- them: many callers share the statement, and none of them shall wait for that (E6).
-- Leans on the primary key.
SELECT k.queue_id, k.name, k.position, k.content_hash
FROM OPENJSON(@list) WITH (queue_id int '$[0]', name varbinary(max) '$[1]') AS j
INNER LOOP JOIN queuebox.idempotency_key AS k WITH (UPDLOCK, ROWLOCK, NOWAIT, FORCESEEK)
    ON k.queue_id = j.queue_id AND k.name = CAST(j.name AS varbinary(255))
OPTION (FORCE ORDER, MAXDOP 1)
