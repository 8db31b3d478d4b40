-- Removes ordering keys that nothing needs, whose locks the caller has.
-- Leans on the primary key; the loop over the list never scans.
DELETE k
FROM OPENJSON(@list) WITH (key_id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.ordering_key AS k WITH (ROWLOCK) ON k.key_id = j.key_id;
SELECT @@ROWCOUNT AS changed;
