-- Makes the rows of ordering keys that have none, in the order in which keys are locked. A
-- key that is there is not touched: it is only read and locked afterwards, which is cheaper
-- than an update. A key that another transaction is just making is waited for.
-- Leans on ordering_key_name_key.
WITH named AS MATERIALIZED (
    SELECT DISTINCT u.queue_id, u.name COLLATE "C" AS name
    FROM unnest($1::integer[], $2::text[]) AS u (queue_id, name)
    WHERE u.name <> ''
    ORDER BY 1, 2
)
INSERT INTO queuebox.ordering_key (queue_id, name)
SELECT n.queue_id, n.name
FROM named n
WHERE NOT EXISTS (SELECT 1 FROM queuebox.ordering_key k WHERE k.queue_id = n.queue_id AND k.name = n.name LIMIT 1)
ORDER BY n.queue_id, n.name
ON CONFLICT (queue_id, name) DO NOTHING
