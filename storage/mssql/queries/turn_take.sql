-- Takes the turn to count, or says that it is still taken: @holder is who asks. No row: it is not
-- time, or somebody else counts. Leans on the primary key.
UPDATE queuebox.count_turn
SET holder = @holder, held_until = DATEADD(second, 6, {{now}})
WHERE id = 1 AND next_time <= {{now}}
    AND (holder IS NULL OR holder = @holder OR held_until <= {{now}});
SELECT @@ROWCOUNT AS changed;
