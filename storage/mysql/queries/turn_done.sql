-- Ends the turn; the next one may begin after :rest_us microseconds. Leans on the primary key.
UPDATE count_turn
SET holder = NULL, held_until = {{now}}, next_time = {{now}} + INTERVAL :rest_us MICROSECOND
WHERE id = 1 AND holder = :holder
