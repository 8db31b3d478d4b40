-- How many queues there are, for the limit of CreateQueue. It is asked for under the lock of
-- queue_turn, so that no two servers make the last one.
SELECT COUNT(*) FROM queue AS q
