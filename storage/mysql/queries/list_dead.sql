-- Of the ids :first to :last those that are dead and cancelled messages of the queue and kept, and
-- are meant, newest first, :limit at most. Leans on dead_queue, walked backwards.
SELECT {{finished_columns}},
    m.state, m.dead_reason, NULL AS result, CASE WHEN :payload THEN m.payload END AS payload
FROM dead AS m FORCE INDEX (dead_queue)
STRAIGHT_JOIN queue AS q ON q.queue_id = m.queue_id
WHERE m.queue_id = :queue_id AND m.id >= :first AND m.id <= :last
    AND {{kept_dead}}
    AND {{meant_dead}}
ORDER BY m.id DESC
LIMIT :limit
