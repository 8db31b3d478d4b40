-- Locks a live message, unless somebody else has locked it. Leans on the primary key.
SELECT m.key_id FROM message AS m WHERE m.id = :id AND m.queue_id = :queue_id FOR UPDATE SKIP LOCKED
