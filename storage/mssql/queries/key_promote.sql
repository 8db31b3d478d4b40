-- Makes messages the heads of their keys, ready at their own time or now, whichever is later
-- (O6). The caller has the locks of the rows. message_head refuses a second head.
-- Leans on the primary key.
UPDATE queuebox.message WITH (ROWLOCK)
SET place = CASE WHEN ready_time > {{now}} THEN 1 ELSE 0 END,
    ready_time = CASE WHEN ready_time > {{now}} THEN ready_time ELSE {{now}} END
WHERE id IN (SELECT j.id FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j);
SELECT @@ROWCOUNT AS changed;
