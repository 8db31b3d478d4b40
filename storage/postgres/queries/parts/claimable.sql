-- The ready messages of one segment of the walk, locked, in claim order. A segment is a range
-- of priorities; the comparison of rows is the place to start from in the index, in the first
-- priority of the range, so a hint (which names one priority) and a whole range are one text.
WHERE m.queue_id = $1 AND m.place = 0 AND m.ready_time <= statement_timestamp()
  AND m.priority <= seg.highest AND m.priority >= seg.lowest
  AND (m.ready_time, m.position) >= (seg.ready_from, seg.position_from)
  AND (m.state = 0 OR (m.state = 1 AND m.lease_end <= clock_timestamp()))
  AND NOT m.cancel_requested AND (m.max_attempts = 0 OR m.attempt < m.max_attempts)
  AND (m.expire_time IS NULL OR m.expire_time > clock_timestamp())
  AND (SELECT g.open FROM gate g)
ORDER BY m.priority DESC, m.ready_time, m.position
LIMIT $2
FOR UPDATE SKIP LOCKED
