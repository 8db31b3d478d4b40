-- Which completed messages m are meant.
(:states = 0 OR (:states >> 2) & 1 = 1)
    AND :dead_reasons = 0
    AND (COALESCE(:ordering_key, '') = '' OR m.ordering_key = :ordering_key)
    AND {{filter}}
