-- Deletes settlements that are older than the completed retention of their queue and than ten
-- minutes (S5), ?1 at most. Reads the queues, and for each of them leans on settlement_time.
DELETE FROM settlement
WHERE (position, token) IN (
    SELECT s.position, s.token
    FROM queue AS q
    CROSS JOIN settlement AS s
    WHERE s.queue_id = q.id
      AND s.settle_time <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER) - max(q.completed_retention, 600000)
    LIMIT ?1)
