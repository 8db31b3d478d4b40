-- Puts messages back after a Retry (2), with the error and code of the try, or a Release (4),
-- with the attempt refunded: ready at once or delayed. The caller has the locks of the rows
-- since an earlier statement, and runs again where not all of them matched.
-- Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', queue_id INT PATH '$[1]', token CHAR(32) PATH '$[2]',
    available DATETIME(6) PATH '$[3]', action INT PATH '$[4]', error TEXT CHARACTER SET utf8mb4 PATH '$[5]',
    reason_code VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id AND m.queue_id = j.queue_id
SET m.state = 0, m.place = IF(j.available > :now, 1, 0), m.ready_time = j.available,
    m.attempt = m.attempt - IF(j.action = 4, 1, 0),
    m.last_error = IF(j.action = 2, j.error, m.last_error),
    m.reason_code = IF(j.action = 2, j.reason_code, m.reason_code),
    m.token = NULL, m.lease_end = NULL, m.claim_time = NULL, m.lease_us = NULL
WHERE m.state = 1 AND m.token = UNHEX(j.token) AND m.lease_end > {{now}}
