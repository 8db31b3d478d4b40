-- Counts the next :limit live messages after the id :after, by queue. The time :now was read by
-- an earlier statement. Leans on the primary key; takes no lock.
SELECT s.queue_id, {{count_columns}}
FROM (
    SELECT {{count_rows}}
    FROM message AS m FORCE INDEX (PRIMARY)
    WHERE m.id > :after
    ORDER BY m.id
    LIMIT :limit
) AS s
GROUP BY s.queue_id
ORDER BY s.queue_id
