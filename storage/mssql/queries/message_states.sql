-- The state that everybody sees of the listed messages, live or finished and kept; no row for one
-- that is not there or past its retention. A live message is not waited for, whoever holds it
-- (NOLOCK): the caller has the lock of its idempotency key, so that it is there is certain, and
-- only the state may be a moment ahead. It is looked for once more at the end, since one that is
-- redriven moves from the last table to the first.
-- Leans on the primary keys.
SELECT m.id, CASE WHEN m.state <> 3 THEN m.state WHEN m.outcome = 1 THEN 2 WHEN m.outcome = 3 THEN 4
    WHEN m.outcome = 5 THEN 5 ELSE 0 END AS state
FROM OPENJSON(@list) WITH (queue_id int '$[0]', id bigint '$[1]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (NOLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
UNION ALL
SELECT m.id, 2
FROM OPENJSON(@list) WITH (queue_id int '$[0]', id bigint '$[1]') AS j
INNER LOOP JOIN queuebox.completed AS m WITH (READCOMMITTEDLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = m.queue_id
WHERE {{kept_completed}}
UNION ALL
SELECT m.id, m.state
FROM OPENJSON(@list) WITH (queue_id int '$[0]', id bigint '$[1]') AS j
INNER LOOP JOIN queuebox.dead AS m WITH (READCOMMITTEDLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = m.queue_id
WHERE {{kept_dead}}
UNION ALL
SELECT m.id, CASE WHEN m.state <> 3 THEN m.state WHEN m.outcome = 1 THEN 2 WHEN m.outcome = 3 THEN 4
    WHEN m.outcome = 5 THEN 5 ELSE 0 END
FROM OPENJSON(@list) WITH (queue_id int '$[0]', id bigint '$[1]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (NOLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
OPTION (FORCE ORDER, MAXDOP 1)
