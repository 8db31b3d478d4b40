-- Takes heads back behind others of their keys. It comes before key_promote, since a key has
-- one head at a time. Leans on the primary key.
UPDATE message SET place = 2 WHERE position IN (SELECT value FROM json_each(?1))
