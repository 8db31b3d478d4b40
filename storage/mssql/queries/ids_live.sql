-- The ids of the live messages of a queue, @limit at most, whichever: where there are more, a list
-- walks over the table. Leans on message_ready, message_delayed and message_parked alone; waits for
-- nobody, and what it gives is looked at again.
SELECT TOP (@limit) s.id
FROM (
    SELECT m.id FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_ready)) WHERE m.queue_id = @queue_id AND m.place = 0
    UNION ALL
    SELECT m.id FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_delayed)) WHERE m.queue_id = @queue_id AND m.place = 1
    UNION ALL
    SELECT m.id FROM queuebox.message AS m WITH (NOLOCK, INDEX (message_parked)) WHERE m.queue_id = @queue_id AND m.place = 2
) AS s;
