-- Locks those of the listed messages that nobody else has locked, and tells what their marks
-- say. Leans on the primary key.
SELECT m.id, m.key_id, CAST(CASE WHEN m.place < 2 THEN 1 ELSE 0 END AS bit) AS head, m.state, m.outcome, m.settle_time, m.mark_delay_us
FROM OPENJSON(@list) WITH (id bigint '$[0]', queue_id int '$[1]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (UPDLOCK, READPAST, ROWLOCK) ON m.id = j.id
WHERE m.queue_id = j.queue_id
OPTION (FORCE ORDER)
