-- Gives claims back whose caller never had them: pending, claimable at once, the attempt
-- refunded, no trace in the history (C15). The caller has locked them. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', id BIGINT PATH '$[1]', token CHAR(32) PATH '$[2]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.state = 0, m.place = 0, m.ready_time = {{now}}, m.attempt = m.attempt - 1,
    m.token = NULL, m.lease_end = NULL, m.lease_us = NULL, m.claim_time = NULL
WHERE m.queue_id = j.queue_id
  AND m.state = 1
  AND m.token = UNHEX(j.token)
  AND m.lease_end > {{now}}
