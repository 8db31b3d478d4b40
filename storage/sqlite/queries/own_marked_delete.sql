-- Removes a mark that is finished. Leans on the primary key.
DELETE FROM marked WHERE id = ?1
