-- Forgets what blocked keys. Leans on the primary key.
UPDATE ordering_key SET blocked_by = NULL WHERE id IN (SELECT value FROM json_each(?1))
