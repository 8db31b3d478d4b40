-- The claim of a live message, to say why a fence did not hold.
SELECT state, token, lease_end, lease_end <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER),
       outcome, mark_action, settle_time, settle_time + mark_delay, coalesce(mark_dead_reason, 0)
FROM message
WHERE position = ?2 AND queue_id = ?1
