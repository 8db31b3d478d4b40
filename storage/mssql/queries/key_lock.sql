-- Locks ordering keys in the order of the list, which is by queue and name (D12); one that
-- somebody else has is waited for. A key that is not there any more is left out. The loop keeps
-- the order of the list. Leans on the primary key, which is what FORCESEEK is for: the lock of a
-- row in another index would be another lock.
SELECT k.key_id
FROM OPENJSON(@list) WITH (key_id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.ordering_key AS k WITH (UPDLOCK, ROWLOCK, FORCESEEK) ON k.key_id = j.key_id
OPTION (FORCE ORDER, MAXDOP 1)
