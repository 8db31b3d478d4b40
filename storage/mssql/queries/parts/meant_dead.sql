-- Which dead and cancelled messages m are meant.
(@states = 0 OR @states & POWER(2, m.state) <> 0)
    AND (@dead_reasons = 0 OR @dead_reasons & POWER(2, m.dead_reason) <> 0)
    AND (@ordering_key IS NULL OR m.ordering_key = @ordering_key)
    AND {{filter}}
