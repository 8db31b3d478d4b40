-- The next count may begin after ?1 milliseconds.
UPDATE count_turn SET next_time = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) + ?1 WHERE id = 1
