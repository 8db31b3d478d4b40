-- Removes a row that was placed, or whose message is a duplicate. Leans on the primary key.
DELETE FROM incoming WHERE id = ?1
