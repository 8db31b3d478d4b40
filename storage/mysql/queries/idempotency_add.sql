-- Takes idempotency keys that nobody had when they were looked for; the primary key refuses one
-- that somebody has taken since.
INSERT INTO idempotency_key (queue_id, name, position, create_time, content_hash)
SELECT j.queue_id, j.name, j.position, {{now}}, FROM_BASE64(j.content_hash)
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]', position BIGINT PATH '$[2]',
    content_hash VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[3]')) AS j
