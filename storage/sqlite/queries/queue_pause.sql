-- Pauses or resumes, with a new version only where that changes something.
UPDATE queue
SET version = version + 1, paused = ?2
WHERE name = ?1 AND paused <> ?2
