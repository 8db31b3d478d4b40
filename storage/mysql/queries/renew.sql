-- Sets lease ends anew from the clock and touches nothing else but the length (R1, R4). A length
-- of 0 repeats the last one, cut to the maximum. The caller has locked the messages in an earlier
-- statement (S13). Leans on the primary key, writes no index.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', id BIGINT PATH '$[1]', token CHAR(32) PATH '$[2]',
    lease_us BIGINT PATH '$[3]', max_us BIGINT PATH '$[4]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.lease_end = {{now}} + INTERVAL (CASE WHEN j.lease_us > 0 THEN j.lease_us
        WHEN j.max_us > 0 THEN LEAST(m.lease_us, j.max_us) ELSE m.lease_us END) MICROSECOND,
    m.lease_us = CASE WHEN j.lease_us > 0 THEN j.lease_us
        WHEN j.max_us > 0 THEN LEAST(m.lease_us, j.max_us) ELSE m.lease_us END
WHERE m.queue_id = j.queue_id
  AND m.state = 1
  AND m.token = UNHEX(j.token)
  AND m.lease_end > {{now}}
