-- Which live messages m are meant: a marked one (E12) by what its mark says. No live message has
-- a reason of its death but by its mark.
(:states = 0 OR (:states >> CASE WHEN m.state <> 3 THEN m.state WHEN m.outcome = 1 THEN 2 WHEN m.outcome = 3 THEN 4 WHEN m.outcome = 5 THEN 5 ELSE 0 END) & 1 = 1)
    AND (:dead_reasons = 0 OR (:dead_reasons >> COALESCE(m.mark_dead_reason, 0)) & 1 = 1)
    AND (COALESCE(:ordering_key, '') = '' OR m.key_id = (
        SELECT k.key_id FROM ordering_key AS k WHERE k.queue_id = :queue_id AND k.name = :ordering_key))
    AND {{filter}}
