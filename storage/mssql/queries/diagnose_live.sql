-- The claims of live messages, to say why a fence did not hold. It waits for nobody: a row that
-- somebody else is changing is only told to be locked, and who has its lock can say more.
-- Leans on the primary key.
SELECT j.i, o.key_id, CAST(CASE WHEN m.id IS NULL THEN 1 ELSE 0 END AS bit) AS locked,
    COALESCE(m.state, 0) AS state, CAST(CASE WHEN m.token = j.token THEN 1 ELSE 0 END AS bit) AS mine,
    COALESCE(m.attempt, 0) AS attempt, m.outcome, m.mark_action, m.mark_dead_reason, m.settle_time, m.mark_delay_us
FROM OPENJSON(@list) WITH (i int '$[0]', queue_id int '$[1]', id bigint '$[2]', token uniqueidentifier '$[3]') AS j
INNER LOOP JOIN queuebox.message AS o WITH (NOLOCK) ON o.id = j.id AND o.queue_id = j.queue_id
LEFT OUTER LOOP JOIN queuebox.message AS m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK) ON m.id = j.id
OPTION (FORCE ORDER)
