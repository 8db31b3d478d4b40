-- Tells whether a message of the queue waits behind the head of its ordering key. Only the
-- first 1,000 keys are looked at: the answer is for people, and its cost is bounded.
-- Leans on ordering_key_name_key and message_parked.
SELECT EXISTS (
    SELECT 1
    FROM (SELECT k.key_id FROM queuebox.ordering_key k WHERE k.queue_id = $1::integer LIMIT 1000) k
    CROSS JOIN LATERAL (
        SELECT 1 FROM queuebox.message m WHERE m.key_id = k.key_id AND m.place = 2 LIMIT 1
    ) m
)
