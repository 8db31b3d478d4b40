-- What this token did to this message (S5, S6). Leans on the primary key.
SELECT action, outcome, dead_reason, settle_time, ready_time FROM settlement WHERE position = ?2 AND token = ?3 AND queue_id = ?1
