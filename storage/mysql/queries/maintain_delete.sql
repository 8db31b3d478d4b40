-- Removes claim calls; one whose claim id was used anew meanwhile has another time and stays. Leans
-- on the primary key.
DELETE c
FROM JSON_TABLE(:list, '$[*]' COLUMNS (queue_id INT PATH '$[0]', claim_id CHAR(32) PATH '$[1]', claim_time DATETIME(6) PATH '$[2]')) AS j
STRAIGHT_JOIN claim_call AS c FORCE INDEX (PRIMARY) ON c.queue_id = j.queue_id AND c.claim_id = UNHEX(j.claim_id)
WHERE c.claim_time = j.claim_time
