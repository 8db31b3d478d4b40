-- Which messages committed transactions have marked (E12), with their ordering keys. It locks
-- nothing and waits for nobody. Walks the primary key from the given number on.
SELECT k.seq, k.queue_id, k.id, k.key_id
FROM marked AS k FORCE INDEX (PRIMARY)
WHERE k.seq >= :from
ORDER BY k.seq
LIMIT :look
