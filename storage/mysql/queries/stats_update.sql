-- Keeps counts where older ones are; those that are younger than :idle_time and the same stay as
-- they are. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', ready BIGINT PATH '$[1]', delayed_count BIGINT PATH '$[2]',
    blocked BIGINT PATH '$[3]', leased BIGINT PATH '$[4]', lease_expired BIGINT PATH '$[5]', completed BIGINT PATH '$[6]',
    dead BIGINT PATH '$[7]', oldest_ready DATETIME(6) PATH '$[8]')) AS j
STRAIGHT_JOIN queue_stats AS t FORCE INDEX (PRIMARY) ON t.queue_id = j.queue_id
SET t.ready = j.ready, t.delayed_count = j.delayed_count, t.blocked = j.blocked, t.leased = j.leased,
    t.lease_expired = j.lease_expired, t.completed = j.completed, t.dead = j.dead, t.oldest_ready = j.oldest_ready, t.as_of = :as_of
WHERE t.as_of <= :as_of
    AND (t.as_of <= :idle_time OR t.ready <> j.ready OR t.delayed_count <> j.delayed_count OR t.blocked <> j.blocked
        OR t.leased <> j.leased OR t.lease_expired <> j.lease_expired OR t.completed <> j.completed OR t.dead <> j.dead
        OR NOT (t.oldest_ready <=> j.oldest_ready))
