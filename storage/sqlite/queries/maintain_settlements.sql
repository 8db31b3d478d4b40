-- Removes settlements of a queue that are older than its completed retention and than ten
-- minutes, ?2 at most. Leans on settlement_time.
DELETE FROM settlement
WHERE (position, token) IN (
    SELECT s.position, s.token FROM settlement AS s
    WHERE s.queue_id = ?1
      AND s.settle_time < CAST(round(unixepoch('subsec') * 1000) AS INTEGER)
          - max((SELECT completed_retention FROM queue WHERE id = ?1), 600000)
    ORDER BY s.settle_time
    LIMIT ?2)
