-- The rows of ordering keys by their names; a key without one is left out. Takes no lock and
-- waits for nobody: what it finds is looked for again when the key is locked.
-- Leans on ordering_key_name, one seek a key.
SELECT k.key_id, k.queue_id, k.name
FROM OPENJSON(@list) WITH (queue_id int '$[0]', name varbinary(max) '$[1]') AS j
INNER LOOP JOIN queuebox.ordering_key AS k WITH (NOLOCK, FORCESEEK) ON k.queue_id = j.queue_id AND k.name = CAST(j.name AS varbinary(255))
OPTION (FORCE ORDER)
