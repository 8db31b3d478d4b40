-- Takes idempotency keys over from messages that are gone or past their retention (E5). The
-- caller has locked the keys and looked. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]', position BIGINT PATH '$[2]',
    content_hash VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[3]')) AS j
STRAIGHT_JOIN idempotency_key AS k FORCE INDEX (PRIMARY) ON k.queue_id = j.queue_id AND k.name = j.name
SET k.position = j.position, k.content_hash = FROM_BASE64(j.content_hash), k.create_time = {{now}}
