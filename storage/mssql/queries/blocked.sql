-- Tells whether a message of the queue waits behind the head of its ordering key. Only the
-- first 1,000 keys are looked at: the answer is for people, and its cost is bounded.
-- Leans on ordering_key_name and message_key.
SELECT CAST(CASE WHEN EXISTS (
    SELECT 1
    FROM (SELECT TOP (1000) k.key_id FROM queuebox.ordering_key AS k WITH (NOLOCK)
        WHERE k.queue_id = @queue_id ORDER BY k.name) AS few
    INNER LOOP JOIN queuebox.message AS m WITH (NOLOCK) ON m.key_id = few.key_id AND m.place = 2
) THEN 1 ELSE 0 END AS bit) AS blocked
