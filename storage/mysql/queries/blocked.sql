-- Tells whether a message of the queue waits behind the head of its ordering key. Only the
-- first 1,000 keys are looked at: the answer is for people, and its cost is bounded.
-- Leans on ordering_key_name and message_key.
SELECT EXISTS (
    SELECT 1
    FROM (SELECT k.key_id FROM ordering_key AS k FORCE INDEX (ordering_key_name)
        WHERE k.queue_id = :queue_id LIMIT 1000) AS few
    STRAIGHT_JOIN message AS m FORCE INDEX (message_key) ON m.key_id = few.key_id AND m.place = 2
)
