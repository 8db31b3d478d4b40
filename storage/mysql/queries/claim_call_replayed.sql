-- Notes that a repeat has received the claims of these calls, so that they are never given back
-- (C15). The caller has locked the rows. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (claim_id CHAR(32) PATH '$[0]')) AS j
STRAIGHT_JOIN claim_call AS c FORCE INDEX (PRIMARY) ON c.queue_id = :queue_id AND c.claim_id = UNHEX(j.claim_id)
SET c.replayed = 1
WHERE c.replayed = 0
