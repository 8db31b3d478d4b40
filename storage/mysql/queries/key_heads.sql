-- Locks heads that may have to step back, and those that would take their places, unless
-- somebody else has locked them, and tells of each where it stands and whether nobody holds a
-- claim of it. Leans on the primary key.
SELECT m.id, m.place, COALESCE(m.state = 0 OR (m.state = 1 AND m.lease_end <= {{now}}), 0) AS free, {{now}}
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
