-- Reads what a claim was settled as (E12).
CALL queuebox_outcome(0 /* queue_id */, ?, ?)
