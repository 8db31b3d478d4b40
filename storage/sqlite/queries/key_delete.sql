-- Removes the listed ordering keys. The caller has seen under the write lock that nothing
-- needs them. Leans on the primary key.
DELETE FROM ordering_key WHERE id IN (SELECT value FROM json_each(?1))
