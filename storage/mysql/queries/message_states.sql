-- The state that everybody sees of the listed messages, live or finished and kept; no row for one
-- that is not there or past its retention. One statement reads one snapshot.
-- Leans on the primary keys.
SELECT m.id, CASE WHEN m.state <> 3 THEN m.state WHEN m.outcome = 1 THEN 2 WHEN m.outcome = 3 THEN 4 WHEN m.outcome = 5 THEN 5 ELSE 0 END
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', id BIGINT PATH '$[1]')) AS j
STRAIGHT_JOIN message AS m ON m.id = j.id AND m.queue_id = j.queue_id
UNION ALL
SELECT m.id, 2
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', id BIGINT PATH '$[1]')) AS j
STRAIGHT_JOIN completed AS m ON m.id = j.id AND m.queue_id = j.queue_id
STRAIGHT_JOIN queue AS q ON q.queue_id = m.queue_id
WHERE {{kept_completed}}
UNION ALL
SELECT m.id, m.state
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', id BIGINT PATH '$[1]')) AS j
STRAIGHT_JOIN dead AS m ON m.id = j.id AND m.queue_id = j.queue_id
STRAIGHT_JOIN queue AS q ON q.queue_id = m.queue_id
WHERE {{kept_dead}}
