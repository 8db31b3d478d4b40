-- Sets aside a row that can never become a message, so that it blocks nothing.
-- Leans on the primary key.
UPDATE incoming AS i SET i.refused = :why WHERE i.id = :id AND i.refused IS NULL
