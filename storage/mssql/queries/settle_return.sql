-- Puts messages back after a Retry (2), with the error and code of the try, or a Release (4),
-- with the attempt refunded: ready at once or delayed. The caller has the locks of the rows
-- since an earlier statement, and runs again where not all of them matched.
-- Leans on the primary key.
UPDATE m
SET state = 0, place = CASE WHEN j.available > @now THEN 1 ELSE 0 END, ready_time = j.available,
    attempt = m.attempt - CASE WHEN j.action = 4 THEN 1 ELSE 0 END,
    last_error = CASE WHEN j.action = 2 THEN j.error ELSE m.last_error END,
    reason_code = CASE WHEN j.action = 2 THEN j.reason_code ELSE m.reason_code END,
    token = NULL, lease_end = NULL, claim_time = NULL, lease_us = NULL
FROM OPENJSON(@list) WITH (id bigint '$[0]', queue_id int '$[1]', token uniqueidentifier '$[2]',
    available datetime2(6) '$[3]', action int '$[4]', error nvarchar(2000) '$[5]', reason_code nvarchar(255) '$[6]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id AND m.queue_id = j.queue_id
WHERE m.state = 1 AND m.token = j.token AND m.lease_end > {{now}}
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
