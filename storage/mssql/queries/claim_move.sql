-- Moves messages whose delay is over to the ready set, at the listed times. The caller has
-- locked them. Leans on the primary key; the loop over the list never scans.
UPDATE m
SET place = 0, ready_time = j.ready_time
FROM OPENJSON(@list) WITH (id bigint '$[0]', ready_time datetime2(6) '$[1]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id
WHERE m.place = 1;
SELECT @@ROWCOUNT AS changed;
