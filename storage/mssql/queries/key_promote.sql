-- Makes messages the heads of their keys, ready at their own time or now, whichever is later
-- (O6). The caller has the locks of the rows. message_head refuses a second head.
-- Leans on the primary key; the loop over the list never scans.
UPDATE m
SET place = CASE WHEN m.ready_time > @now THEN 1 ELSE 0 END,
    ready_time = CASE WHEN m.ready_time > @now THEN m.ready_time ELSE @now END
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id;
SELECT @@ROWCOUNT AS changed;
