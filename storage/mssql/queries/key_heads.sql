-- Locks heads that may have to step back, and those that would take their places, unless
-- somebody else has locked them, and tells of each where it stands and whether nobody holds a
-- claim of it. It never waits, so the clock of its start does. Leans on the primary key.
SELECT m.id, m.place,
    CAST(CASE WHEN m.state = 0 OR (m.state = 1 AND m.lease_end <= {{now}}) THEN 1 ELSE 0 END AS bit) AS free,
    {{now}} AS now
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (UPDLOCK, READPAST, ROWLOCK) ON m.id = j.id
OPTION (FORCE ORDER)
