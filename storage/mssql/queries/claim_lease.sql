-- Leases messages, each with its token, length and worker: token, lease end, claim time, worker
-- and attempt in one statement. The caller has locked them by claim_lock or claim_due in the same
-- transaction. Leans on the primary key; writes no indexed column but the place of those that
-- were delayed.
UPDATE m
SET state = 1, place = 0, token = j.token,
    lease_end = DATEADD(microsecond, CAST(j.lease_us % 1000000 AS int),
        DATEADD(second, CAST(j.lease_us / 1000000 AS int), {{now}})),
    lease_us = j.lease_us, claim_time = {{now}}, worker_id = j.worker_id, attempt = m.attempt + 1
FROM OPENJSON(@list) WITH (id bigint '$[0]', token uniqueidentifier '$[1]', lease_us bigint '$[2]',
    worker_id nvarchar(255) '$[3]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id
WHERE m.queue_id = @queue_id AND m.place < 2 AND m.state IN (0, 1);
SELECT @@ROWCOUNT AS changed;
