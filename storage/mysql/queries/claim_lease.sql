-- Leases messages, each with its token, length and worker: token, lease end, claim time, worker
-- and attempt in one statement. The caller has locked them by claim_lock or claim_due in the same
-- transaction. Leans on the primary key; writes no indexed column but the place of those that
-- were delayed.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', token CHAR(32) PATH '$[1]', lease_us BIGINT PATH '$[2]',
    worker_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[3]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.state = 1, m.place = 0, m.token = UNHEX(j.token), m.lease_end = {{now}} + INTERVAL j.lease_us MICROSECOND,
    m.lease_us = j.lease_us, m.claim_time = {{now}}, m.worker_id = j.worker_id, m.attempt = m.attempt + 1
WHERE m.queue_id = :queue_id AND m.place < 2 AND m.state IN (0, 1)
