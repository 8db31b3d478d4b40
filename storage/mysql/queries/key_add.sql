-- Makes the rows of ordering keys that have none, in the order in which keys are locked. One
-- that another transaction is just making is waited for and then refused by ordering_key_name:
-- the caller runs again and finds it.
INSERT INTO ordering_key (queue_id, name)
SELECT j.queue_id, j.name
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
