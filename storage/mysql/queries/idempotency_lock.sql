-- Locks those of the listed idempotency keys that are there, in the order of the list, which is
-- that of all who lock several. A key that an open transaction is taking is waited for (E6).
-- Leans on the primary key.
SELECT k.queue_id, k.name, k.position, k.content_hash
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
STRAIGHT_JOIN idempotency_key AS k FORCE INDEX (PRIMARY) ON k.queue_id = j.queue_id AND k.name = j.name
FOR UPDATE /*!80000 OF k */
