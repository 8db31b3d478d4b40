-- Takes idempotency keys that nobody had when they were looked for; the primary key refuses one
-- that somebody has taken since.
INSERT INTO queuebox.idempotency_key (queue_id, name, position, create_time, content_hash)
SELECT j.queue_id, CAST(j.name AS varbinary(255)), j.position, {{now}}, CAST(j.content_hash AS binary(32))
FROM OPENJSON(@list) WITH (queue_id int '$[0]', name varbinary(max) '$[1]', position bigint '$[2]',
    content_hash varbinary(max) '$[3]') AS j;
SELECT @@ROWCOUNT AS changed;
