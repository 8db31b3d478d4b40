-- Counts the next @limit live messages after the id @after, by queue. The time @now was read by
-- an earlier statement. Leans on the primary key; takes no lock. What is not
-- committed yet is counted as it stands: nobody is waited for.
SELECT s.queue_id, {{count_columns}}
FROM (
    SELECT TOP (@limit) {{count_rows}}
    FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_id))
    WHERE m.id > @after
    ORDER BY m.id
) AS s
GROUP BY s.queue_id
ORDER BY s.queue_id;
