-- How many queues there are, for the limit of CreateQueue.
SELECT count(*) FROM queue
