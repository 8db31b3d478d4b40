-- Counts the live messages of one queue. The time :now was read by an earlier statement. Leans on
-- message_ready; takes no lock.
SELECT s.queue_id, {{count_columns}}
FROM (
    SELECT {{count_rows}}
    FROM message AS m FORCE INDEX (message_ready)
    WHERE m.queue_id = :queue_id
) AS s
GROUP BY s.queue_id
