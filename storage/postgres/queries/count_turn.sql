-- Takes the turn to count, or says that it is still taken: $1 is who asks. No row: it is not
-- time, or somebody else counts. Leans on count_turn_pkey.
UPDATE queuebox.count_turn t
SET holder = $1::uuid, held_until = clock_timestamp() + interval '6 seconds'
WHERE t.id = 1 AND t.next_time <= clock_timestamp()
  AND (t.holder IS NULL OR t.holder = $1::uuid OR t.held_until <= clock_timestamp())
RETURNING t.id
