-- What tokens did to their messages, as long as the history is kept (S5, S6). It waits for a
-- settlement that is being written, whatever the database's READ_COMMITTED_SNAPSHOT: the live
-- message is gone for those who look already. Leans on the primary keys.
SELECT j.i, s.action, s.outcome, s.dead_reason, s.settle_time, s.available_time
FROM OPENJSON(@list) WITH (i int '$[0]', queue_id int '$[1]', id bigint '$[2]', token uniqueidentifier '$[3]') AS j
INNER LOOP JOIN queuebox.settlement AS s WITH (READCOMMITTEDLOCK)
    ON s.id = j.id AND s.token = j.token AND s.queue_id = j.queue_id
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = s.queue_id
WHERE DATEDIFF_BIG(microsecond, s.settle_time, {{now}}) <
    CASE WHEN q.completed_retention_us > 600000000 THEN q.completed_retention_us ELSE 600000000 END
OPTION (FORCE ORDER)
