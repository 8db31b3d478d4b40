-- Keeps the counts of queues that have none yet. Leans on queue_stats_queue.
INSERT INTO queuebox.queue_stats (queue_id, as_of, ready, delayed_count, blocked, leased, lease_expired, completed, dead, oldest_ready)
SELECT j.queue_id, @as_of, j.ready, j.delayed_count, j.blocked, j.leased, j.lease_expired, j.completed, j.dead, j.oldest_ready
FROM OPENJSON(@list) WITH (queue_id int '$[0]', ready bigint '$[1]', delayed_count bigint '$[2]', blocked bigint '$[3]',
    leased bigint '$[4]', lease_expired bigint '$[5]', completed bigint '$[6]', dead bigint '$[7]',
    oldest_ready datetime2(6) '$[8]') AS j
WHERE NOT EXISTS (SELECT 1 FROM queuebox.queue_stats AS t WHERE t.queue_id = j.queue_id);
SELECT @@ROWCOUNT AS changed;
