-- Tells whether a message of queue ?1 waits behind the head of its ordering key. Only the
-- first 1,000 keys are looked at: the answer is for people, and its cost is bounded.
-- Leans on the unique index of the keys and on message_key, where the second message of a
-- key is found.
SELECT EXISTS (
    SELECT 1 FROM (SELECT id FROM ordering_key WHERE queue_id = ?1 LIMIT 1000) AS few
    CROSS JOIN message AS m
    WHERE m.key_id = few.id AND m.place = 2
)
