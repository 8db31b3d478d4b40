-- Locks those of the ordering keys that nobody has, as key_lock does.
-- Leans on the primary key, and has to (key_lock).
SELECT k.key_id
FROM OPENJSON(@list) WITH (key_id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.ordering_key AS k WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON k.key_id = j.key_id
OPTION (FORCE ORDER, MAXDOP 1)
