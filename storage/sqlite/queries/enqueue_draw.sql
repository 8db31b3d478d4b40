-- Draws a run of positions and returns its last one. Positions are never given out twice.
UPDATE position_sequence SET last = last + ?1 WHERE id = 1 RETURNING last
