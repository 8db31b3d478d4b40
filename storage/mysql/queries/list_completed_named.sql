-- Those of the named messages that are completed messages of the queue and kept, and are meant.
-- Leans on the primary key.
SELECT {{finished_columns}},
    2 AS state, 0 AS dead_reason, m.result, CASE WHEN :payload THEN m.payload END AS payload
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN completed AS m FORCE INDEX (PRIMARY) ON m.id = j.id
STRAIGHT_JOIN queue AS q ON q.queue_id = m.queue_id
WHERE m.queue_id = :queue_id
    AND {{kept_completed}}
    AND {{meant_completed}}
