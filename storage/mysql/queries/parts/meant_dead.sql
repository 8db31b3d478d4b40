-- Which dead and cancelled messages m are meant.
(:states = 0 OR (:states >> m.state) & 1 = 1)
    AND (:dead_reasons = 0 OR (:dead_reasons >> m.dead_reason) & 1 = 1)
    AND (COALESCE(:ordering_key, '') = '' OR m.ordering_key = :ordering_key)
    AND {{filter}}
