-- How many queues there are, for the limit of CreateQueue. It is asked for under the lock of
-- queue_turn, so that no two servers make the last one. Leans on
-- queue_name, which it counts whole: there are few queues.
SELECT COUNT(*) FROM queuebox.queue AS q;
