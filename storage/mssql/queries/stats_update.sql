-- Keeps counts where older ones are; those that are younger than @idle_time and the same stay as
-- they are. Leans on queue_stats_queue.
UPDATE t
SET ready = j.ready, delayed_count = j.delayed_count, blocked = j.blocked, leased = j.leased,
    lease_expired = j.lease_expired, completed = j.completed, dead = j.dead, oldest_ready = j.oldest_ready, as_of = @as_of
FROM OPENJSON(@list) WITH (queue_id int '$[0]', ready bigint '$[1]', delayed_count bigint '$[2]', blocked bigint '$[3]',
    leased bigint '$[4]', lease_expired bigint '$[5]', completed bigint '$[6]', dead bigint '$[7]',
    oldest_ready datetime2(6) '$[8]') AS j
INNER LOOP JOIN queuebox.queue_stats AS t WITH (ROWLOCK) ON t.queue_id = j.queue_id
WHERE t.as_of <= @as_of
    AND (t.as_of <= @idle_time OR t.ready <> j.ready OR t.delayed_count <> j.delayed_count OR t.blocked <> j.blocked
        OR t.leased <> j.leased OR t.lease_expired <> j.lease_expired OR t.completed <> j.completed OR t.dead <> j.dead
        OR COALESCE(t.oldest_ready, CAST('0001-01-01' AS datetime2(6))) <> COALESCE(j.oldest_ready, CAST('0001-01-01' AS datetime2(6))))
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
