-- Of the ids :first to :last those that are completed messages of the queue and kept, and are
-- meant, newest first, :limit at most. Leans on the primary key, walked backwards.
SELECT {{finished_columns}},
    2 AS state, 0 AS dead_reason, m.result, CASE WHEN :payload THEN m.payload END AS payload
FROM completed AS m FORCE INDEX (PRIMARY)
STRAIGHT_JOIN queue AS q ON q.queue_id = m.queue_id
WHERE m.queue_id = :queue_id AND m.id >= :first AND m.id <= :last
    AND {{kept_completed}}
    AND {{meant_completed}}
ORDER BY m.id DESC
LIMIT :limit
