-- Forgets calls that got nothing or are given back, unless a repeat has received what they got
-- (C15). A repeat that is running is waited for. Leans on the primary key.
DELETE c FROM JSON_TABLE(:list, '$[*]' COLUMNS (claim_id CHAR(32) PATH '$[0]')) AS j
STRAIGHT_JOIN claim_call AS c FORCE INDEX (PRIMARY) ON c.queue_id = :queue_id AND c.claim_id = UNHEX(j.claim_id)
WHERE c.replayed = 0
