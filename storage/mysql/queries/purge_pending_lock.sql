-- Locks those of the listed live messages of a queue that nobody holds, neither as a claim nor
-- in a transaction, and that are meant still, and tells what keys each has: the row that the
-- lock returned is judged. Leans on the primary keys.
SELECT m.id, m.idempotency_key, COALESCE((SELECT k.name FROM ordering_key AS k WHERE k.key_id = m.key_id), '')
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.queue_id = :queue_id AND m.state = 0
  AND {{meant_live}}
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
