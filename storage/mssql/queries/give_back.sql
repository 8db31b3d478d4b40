-- Gives claims back whose caller never had them: pending, claimable at once, the attempt
-- refunded, no trace in the history (C15). The caller has locked them. Leans on the primary key.
UPDATE m
SET state = 0, place = 0, ready_time = {{now}}, attempt = m.attempt - 1,
    token = NULL, lease_end = NULL, lease_us = NULL, claim_time = NULL
FROM OPENJSON(@list) WITH (queue_id int '$[0]', id bigint '$[1]', token uniqueidentifier '$[2]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id
WHERE m.queue_id = j.queue_id
  AND m.state = 1
  AND m.token = j.token
  AND m.lease_end > {{now}};
SELECT @@ROWCOUNT AS changed;
