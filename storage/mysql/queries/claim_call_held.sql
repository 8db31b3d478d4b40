-- Notes which messages the calls have got, in rows that this transaction has made. Leans on the
-- primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (claim_id CHAR(32) PATH '$[0]', held LONGTEXT PATH '$[1]')) AS j
STRAIGHT_JOIN claim_call AS c FORCE INDEX (PRIMARY) ON c.queue_id = :queue_id AND c.claim_id = UNHEX(j.claim_id)
SET c.held = FROM_BASE64(j.held)
