-- Queue and name of ordering keys, which are the order of their locks. Takes no lock; what it
-- finds is looked for again when the key is locked. Leans on the primary key.
SELECT k.key_id, k.queue_id, k.name
FROM OPENJSON(@list) WITH (key_id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.ordering_key AS k WITH (NOLOCK) ON k.key_id = j.key_id
OPTION (FORCE ORDER)
