-- Tells all servers which queues to look at, one notification for all of them: NOTIFY
-- takes a lock of the whole database at commit.
SELECT pg_notify('queuebox', $1::text)
