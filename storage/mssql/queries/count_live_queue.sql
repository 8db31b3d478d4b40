-- Counts the live messages of one queue. The time @now was read by an earlier statement. Leans on
-- message_ready, message_delayed and message_parked; takes no lock. What is not committed yet is
-- counted as it stands: nobody is waited for.
SELECT s.queue_id, {{count_columns}}
FROM (
    SELECT {{count_rows}}
    FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_ready))
    WHERE m.queue_id = @queue_id AND m.place = 0
    UNION ALL
    SELECT {{count_rows}}
    FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_delayed))
    WHERE m.queue_id = @queue_id AND m.place = 1
    UNION ALL
    SELECT {{count_rows}}
    FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_parked))
    WHERE m.queue_id = @queue_id AND m.place = 2
) AS s
GROUP BY s.queue_id;
