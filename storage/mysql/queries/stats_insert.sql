-- Keeps the counts of queues that have none yet. Leans on the primary key.
INSERT INTO queue_stats (queue_id, as_of, ready, delayed_count, blocked, leased, lease_expired, completed, dead, oldest_ready)
SELECT j.queue_id, :as_of, j.ready, j.delayed_count, j.blocked, j.leased, j.lease_expired, j.completed, j.dead, j.oldest_ready
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', ready BIGINT PATH '$[1]', delayed_count BIGINT PATH '$[2]',
    blocked BIGINT PATH '$[3]', leased BIGINT PATH '$[4]', lease_expired BIGINT PATH '$[5]', completed BIGINT PATH '$[6]',
    dead BIGINT PATH '$[7]', oldest_ready DATETIME(6) PATH '$[8]')) AS j
LEFT JOIN queue_stats AS t FORCE INDEX (PRIMARY) ON t.queue_id = j.queue_id
WHERE t.queue_id IS NULL
