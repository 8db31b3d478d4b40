-- Of which messages another claim was settled (S8), as long as the history is kept.
-- Leans on the primary keys.
SELECT j.i
FROM OPENJSON(@list) WITH (i int '$[0]', queue_id int '$[1]', id bigint '$[2]', token uniqueidentifier '$[3]') AS j
INNER LOOP JOIN queuebox.queue AS q WITH (NOLOCK) ON q.queue_id = j.queue_id
WHERE EXISTS (SELECT 1 FROM queuebox.settlement AS s WITH (READCOMMITTEDLOCK)
    WHERE s.id = j.id AND s.token <> j.token AND s.queue_id = j.queue_id
      AND DATEDIFF_BIG(microsecond, s.settle_time, {{now}}) <
        CASE WHEN q.completed_retention_us > 600000000 THEN q.completed_retention_us ELSE 600000000 END)
