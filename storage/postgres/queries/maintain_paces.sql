-- Removes up to $1 states of limits that are not the newest of their queue any more.
-- Leans on claim_pace_pkey.
DELETE FROM queuebox.claim_pace p
USING (
    SELECT o.queue_id, o.seq
    FROM queuebox.claim_pace o
    WHERE o.seq < (SELECT max(n.seq) FROM queuebox.claim_pace n WHERE n.queue_id = o.queue_id)
    ORDER BY o.queue_id, o.seq
    LIMIT $1
) old
WHERE p.queue_id = old.queue_id AND p.seq = old.seq
