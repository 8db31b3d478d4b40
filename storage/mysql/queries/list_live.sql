-- Of the ids :first to :last those that are live messages of the queue, and are
-- meant, newest first, :limit at most. Leans on the primary key, walked backwards.
SELECT {{message_columns}},
    CASE WHEN :payload THEN m.payload END AS payload, {{mark_columns}}
FROM message AS m FORCE INDEX (PRIMARY)
WHERE m.queue_id = :queue_id AND m.id >= :first AND m.id <= :last
    AND {{meant_live}}
ORDER BY m.id DESC
LIMIT :limit
