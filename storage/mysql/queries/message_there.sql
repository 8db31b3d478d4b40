-- Whether a message is live. Takes no lock and waits for nobody. Leans on the primary key.
SELECT m.key_id FROM message AS m WHERE m.id = :id AND m.queue_id = :queue_id
