-- Whether it is time to count.
SELECT next_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) FROM count_turn WHERE id = 1
