-- Reads what a claim was settled as (E12).
EXEC queuebox.own_outcome 0 /* queue_id */, @p1, @p2
