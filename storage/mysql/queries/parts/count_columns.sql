-- What tallyPage of rowlock reads: counts of the live messages s of a queue. A marked one
-- counts as what its mark says (E12), one whose expire time has passed is not ready any more (E7).
COUNT(*) AS n, MAX(s.id) AS last_id,
    COUNT(CASE WHEN s.pending = 1 AND s.place <> 2 AND s.ready_time <= :now THEN 1 END) AS ready,
    COUNT(CASE WHEN s.pending = 1 AND s.place <> 2 AND s.ready_time > :now THEN 1 END) AS delayed_count,
    COUNT(CASE WHEN s.pending = 1 AND s.place = 2 THEN 1 END) AS blocked,
    COUNT(CASE WHEN s.state = 1 AND s.lease_end > :now THEN 1 END) AS leased,
    COUNT(CASE WHEN s.state = 1 AND s.lease_end <= :now THEN 1 END) AS lease_expired,
    COUNT(CASE WHEN s.state = 3 AND s.outcome = 1 THEN 1 END) AS completed,
    COUNT(CASE WHEN s.state = 3 AND s.outcome = 3 THEN 1 END) AS dead,
    MIN(CASE WHEN s.pending = 1 AND s.place <> 2 AND s.ready_time <= :now THEN s.ready_time END) AS oldest_ready
