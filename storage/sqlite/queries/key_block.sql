-- Notes that the head of a key is dead, where its queue blocks a key behind such a one (O7).
-- Leans on the primary keys.
UPDATE ordering_key
SET blocked_by = max(coalesce(blocked_by, 0), ?2)
WHERE id = ?1 AND (SELECT q.ordering FROM queue AS q WHERE q.id = ordering_key.queue_id) = 2
