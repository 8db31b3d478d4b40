-- Sets aside a row that can never become a message, so that it blocks nothing.
UPDATE incoming SET refused = ?2 WHERE id = ?1
