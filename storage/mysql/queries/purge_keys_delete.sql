-- Removes idempotency keys that the transaction has locked. Leans on the primary key.
DELETE k FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]', position BIGINT PATH '$[2]')) AS j
STRAIGHT_JOIN idempotency_key AS k FORCE INDEX (PRIMARY) ON k.queue_id = j.queue_id AND k.name = j.name
WHERE k.position = j.position
