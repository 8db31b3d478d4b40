-- The live message that stands :rows messages after the first one after an id; no row where there
-- are not so many. Walks the primary key.
SELECT m.queue_id, m.id
FROM message AS m FORCE INDEX (PRIMARY)
WHERE m.id > :after
ORDER BY m.id
LIMIT 1 OFFSET :rows
