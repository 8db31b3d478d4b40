-- Where the next page of ids begins that a list looks at: the id that stands :rows rows of the
-- queue below :last; no row where there are not so many. Leans on dead_queue, which it walks alone.
SELECT m.id
FROM dead AS m FORCE INDEX (dead_queue)
WHERE m.queue_id = :queue_id AND m.id <= :last
ORDER BY m.id DESC
LIMIT 1 OFFSET :rows
