-- Deletes the settlement history of purged messages. Leans on the primary key.
DELETE FROM settlement WHERE position IN (SELECT value FROM json_each(?1))
