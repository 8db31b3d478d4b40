-- Appends a settlement to the history (S5).
INSERT INTO settlement (position, token, queue_id, action, outcome, dead_reason, settle_time, ready_time)
VALUES (?2, ?3, ?1, ?4, ?5, ?6, ?7, ?8)
