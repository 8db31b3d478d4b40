-- Counts the messages that stand behind the head of their key, or behind the dead one that
-- blocks it: those that have a key less the heads. Leans on the unique index of the keys, and
-- on message_key and message_head alone.
SELECT (SELECT count(*) FROM ordering_key AS k CROSS JOIN message AS m WHERE k.queue_id = ?1 AND m.key_id = k.id)
     - (SELECT count(*) FROM ordering_key AS k CROSS JOIN message AS m WHERE k.queue_id = ?1 AND m.key_id = k.id AND m.place < 2)
