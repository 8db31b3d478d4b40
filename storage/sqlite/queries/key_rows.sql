-- Those of the listed live messages that have an ordering key, and whether each is its head.
-- Leans on the primary key; the plus keeps the planner off message_key.
SELECT m.key_id, m.position, m.place < 2
FROM json_each(?1) AS j
CROSS JOIN message AS m
WHERE m.position = j.value AND +m.key_id IS NOT NULL
