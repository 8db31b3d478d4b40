-- Those of the named messages that are live messages of the queue, and are meant. Leans on
-- the primary key.
SELECT {{message_columns}},
    CASE WHEN :payload THEN m.payload END AS payload, {{mark_columns}}
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.queue_id = :queue_id
    AND {{meant_live}}
