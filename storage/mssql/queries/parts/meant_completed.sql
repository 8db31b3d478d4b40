-- Which completed messages m are meant.
(@states = 0 OR @states & POWER(2, 2) <> 0)
    AND @dead_reasons = 0
    AND (@ordering_key IS NULL OR m.ordering_key = @ordering_key)
    AND {{filter}}
