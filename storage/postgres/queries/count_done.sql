-- Ends the turn; the next one may begin after $2 microseconds. Leans on count_turn_pkey.
UPDATE queuebox.count_turn t
SET holder = NULL, held_until = clock_timestamp(), next_time = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE t.id = 1 AND t.holder = $1::uuid
