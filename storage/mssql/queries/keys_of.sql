-- The ordering keys of live messages. Takes no lock and waits for nobody: a message never
-- changes its key, and whether it is still live is judged when the key is locked.
-- Leans on the primary keys.
SELECT m.id, k.key_id, k.queue_id, k.name
FROM OPENJSON(@list) WITH (queue_id int '$[0]', id bigint '$[1]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (NOLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
INNER LOOP JOIN queuebox.ordering_key AS k WITH (NOLOCK) ON k.key_id = m.key_id
OPTION (FORCE ORDER)
