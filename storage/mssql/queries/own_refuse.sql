-- Sets aside a row that can never become a message, so that it blocks nothing.
-- Leans on the primary key.
UPDATE queuebox.incoming SET refused = @why WHERE id = @id AND refused IS NULL;
SELECT @@ROWCOUNT AS changed;
