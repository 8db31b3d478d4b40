-- Appends settlements to the history (S5).
INSERT INTO queuebox.settlement (id, token, queue_id, settle_time, available_time, action, outcome, dead_reason)
SELECT j.id, j.token, j.queue_id, @now, j.available, j.action, j.outcome, j.reason
FROM OPENJSON(@list) WITH (id bigint '$[0]', token uniqueidentifier '$[1]', queue_id int '$[2]',
    available datetime2(6) '$[3]', action int '$[4]', outcome int '$[5]', reason int '$[6]') AS j;
SELECT @@ROWCOUNT AS changed;
