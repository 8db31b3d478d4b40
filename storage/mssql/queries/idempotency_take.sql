-- Takes idempotency keys over from messages that are gone or past their retention (E5). The
-- caller has locked the keys and looked. Leans on the primary key.
UPDATE k
SET position = j.position, content_hash = CAST(j.content_hash AS binary(32)), create_time = {{now}}
FROM OPENJSON(@list) WITH (queue_id int '$[0]', name varbinary(max) '$[1]', position bigint '$[2]',
    content_hash varbinary(max) '$[3]') AS j
INNER LOOP JOIN queuebox.idempotency_key AS k WITH (ROWLOCK)
    ON k.queue_id = j.queue_id AND k.name = CAST(j.name AS varbinary(255));
SELECT @@ROWCOUNT AS changed;
