-- Sets lease ends anew from the clock and touches nothing else but the length (R1, R4). A length
-- of 0 repeats the last one, cut to the maximum. The caller has locked the messages in an earlier
-- statement (S13). Leans on the primary key, writes no index.
UPDATE m
SET lease_end = DATEADD(microsecond, CAST(l.lease_us % 1000000 AS int),
        DATEADD(second, CAST(l.lease_us / 1000000 AS int), {{now}})),
    lease_us = l.lease_us
FROM OPENJSON(@list) WITH (queue_id int '$[0]', id bigint '$[1]', token uniqueidentifier '$[2]',
    lease_us bigint '$[3]', max_us bigint '$[4]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id
CROSS APPLY (SELECT CASE WHEN j.lease_us > 0 THEN j.lease_us
    WHEN j.max_us > 0 AND j.max_us < m.lease_us THEN j.max_us
    ELSE m.lease_us END AS lease_us) AS l
WHERE m.queue_id = j.queue_id
  AND m.state = 1
  AND m.token = j.token
  AND m.lease_end > {{now}};
SELECT @@ROWCOUNT AS changed;
