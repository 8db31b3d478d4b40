-- Moves messages whose delay is over to the ready set, at the listed times. The caller has
-- locked them. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', ready_time DATETIME(6) PATH '$[1]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.place = 0, m.ready_time = j.ready_time
WHERE m.place = 1
