-- Waits for a live message that somebody else holds, and locks it.
-- Leans on the primary key.
SELECT m.key_id FROM message AS m WHERE m.id = :id AND m.queue_id = :queue_id FOR UPDATE
