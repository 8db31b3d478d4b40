-- Where the next page of ids begins that a list looks at: the id that stands @rows rows of the
-- queue below @last; no row where there are not so many. It reads ids alone, and waits for
-- nobody. Leans on dead_queue.
SELECT m.id
FROM queuebox.dead AS m WITH (NOLOCK, INDEX (dead_queue))
WHERE m.queue_id = @queue_id AND m.id <= @last
ORDER BY m.id DESC
OFFSET @rows ROWS FETCH NEXT 1 ROWS ONLY;
