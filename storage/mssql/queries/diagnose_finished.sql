-- The ends of messages that are finished and kept: the state, whether this token was the last,
-- and what it did. It waits for one that is being written, as diagnose_history does.
-- Leans on the primary keys.
SELECT j.i, CAST(CASE WHEN m.ordering_key = 0x THEN 0 ELSE 1 END AS bit) AS keyed, 2 AS state, CAST(CASE WHEN m.token = j.token THEN 1 ELSE 0 END AS bit) AS mine,
    1 AS action, 0 AS dead_reason, m.finish_time, m.follow_ups
FROM OPENJSON(@list) WITH (i int '$[0]', queue_id int '$[1]', id bigint '$[2]', token uniqueidentifier '$[3]') AS j
INNER LOOP JOIN queuebox.completed AS m WITH (READCOMMITTEDLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = m.queue_id
WHERE {{kept_completed}}
UNION ALL
SELECT j.i, CAST(CASE WHEN m.ordering_key = 0x THEN 0 ELSE 1 END AS bit), m.state, CAST(CASE WHEN m.token = j.token THEN 1 ELSE 0 END AS bit),
    m.action, m.dead_reason, m.finish_time, NULL
FROM OPENJSON(@list) WITH (i int '$[0]', queue_id int '$[1]', id bigint '$[2]', token uniqueidentifier '$[3]') AS j
INNER LOOP JOIN queuebox.dead AS m WITH (READCOMMITTEDLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = m.queue_id
WHERE {{kept_dead}}
OPTION (FORCE ORDER)
