-- Makes the rows of ordering keys that have none, in the order in which keys are locked. One
-- that another transaction is just making is waited for and then refused by ordering_key_name:
-- the caller runs again and finds it.
INSERT INTO queuebox.ordering_key (queue_id, name)
SELECT j.queue_id, CAST(j.name AS varbinary(255))
FROM OPENJSON(@list) WITH (queue_id int '$[0]', name varbinary(max) '$[1]') AS j;
SELECT @@ROWCOUNT AS changed;
