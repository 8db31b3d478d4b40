-- Those of the keys, each with the position of its dead head, of which the queue blocks a key
-- behind such a one (O7). It waits for nobody: the settings of a queue are read as they stand.
-- Leans on the primary keys.
SELECT j.key_id, j.position
FROM OPENJSON(@list) WITH (key_id bigint '$[0]', position bigint '$[1]') AS j
INNER LOOP JOIN queuebox.ordering_key AS k WITH (NOLOCK) ON k.key_id = j.key_id
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = k.queue_id
WHERE q.ordering_mode = 2
OPTION (FORCE ORDER)
