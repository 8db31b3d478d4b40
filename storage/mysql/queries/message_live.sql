-- A live message, as everybody sees it. Leans on the primary key.
SELECT {{message_columns}},
    CASE WHEN :payload THEN m.payload END AS payload, {{mark_columns}}
FROM message AS m
WHERE m.id = :id AND m.queue_id = :queue_id
