-- Pauses or resumes a queue that is not so already, at a new version. Leans on the primary key.
UPDATE queue
SET version = version + 1, paused = :paused
WHERE queue_id = :queue_id AND paused <> :paused
