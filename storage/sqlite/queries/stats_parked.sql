-- Counts the messages that are parked behind the head of their key, or behind the dead one
-- that blocks it: pending ones, and those whose lease was over when an earlier one came back
-- (O7). Leans on the unique index of the keys, and on message_key for the rows of each.
SELECT count(*) FILTER (WHERE m.state = 0),
       count(*) FILTER (WHERE m.state = 1)
FROM ordering_key AS k
CROSS JOIN message AS m
WHERE k.queue_id = ?1 AND m.key_id = k.id AND m.place = 2
