-- Locks idempotency keys as idempotency_lock does, and fails where somebody else has one of
-- them: many callers share the statement, and none of them shall wait for that (E6).
-- Leans on the primary key.
SELECT k.queue_id, k.name, k.position, k.content_hash
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
STRAIGHT_JOIN idempotency_key AS k FORCE INDEX (PRIMARY) ON k.queue_id = j.queue_id AND k.name = j.name
FOR UPDATE /*!80000 OF k */ NOWAIT
