-- Puts a marked message back: ready or delayed as its mark says, but nothing becomes ready in the
-- past. Leans on the primary key.
UPDATE message
SET state = 0, token = NULL, lease_end = NULL, lease = NULL, claim_time = NULL,
    place = CASE WHEN settle_time + mark_delay > ?2 THEN 1 ELSE 0 END, ready_time = max(settle_time + mark_delay, ?2),
    last_error = coalesce(mark_error, ''), reason_code = coalesce(mark_reason_code, ''),
    outcome = NULL, settle_time = NULL, mark_action = NULL, mark_delay = NULL, mark_dead_reason = NULL,
    mark_reason_code = NULL, mark_error = NULL, mark_result = NULL
WHERE position = ?1 AND state = 3
RETURNING ready_time, key_id
