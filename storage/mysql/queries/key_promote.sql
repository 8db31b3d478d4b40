-- Makes messages the heads of their keys, ready at their own time or now, whichever is later
-- (O6). The caller has the locks of the rows. message_head refuses a second head.
-- Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.place = IF(m.ready_time > :now, 1, 0), m.ready_time = GREATEST(m.ready_time, :now)
