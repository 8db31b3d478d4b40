-- Locks those of the listed idempotency keys that still name the listed messages and that
-- nobody else has. Leans on the primary key.
SELECT k.position
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]', position BIGINT PATH '$[2]')) AS j
STRAIGHT_JOIN idempotency_key AS k FORCE INDEX (PRIMARY) ON k.queue_id = j.queue_id AND k.name = j.name
WHERE k.position = j.position
FOR UPDATE /*!80000 OF k */ SKIP LOCKED
