-- The rows of ordering keys by their names; a key without one is left out. Takes no lock.
-- Leans on ordering_key_name, one seek a key.
SELECT k.key_id, k.queue_id, k.name
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
STRAIGHT_JOIN ordering_key AS k FORCE INDEX (ordering_key_name) ON k.queue_id = j.queue_id AND k.name = j.name
