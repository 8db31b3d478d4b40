-- Ends the turn; the next one may begin after @rest_us microseconds. Leans on the primary key.
UPDATE queuebox.count_turn
SET holder = NULL, held_until = {{now}}, next_time = DATEADD(microsecond, CAST(@rest_us % 1000000 AS int), DATEADD(second, CAST(@rest_us / 1000000 AS int), {{now}}))
WHERE id = 1 AND holder = @holder;
SELECT @@ROWCOUNT AS changed;
