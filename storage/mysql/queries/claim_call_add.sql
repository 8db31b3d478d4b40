-- One narrow row for each call with a claim id, before it looks for messages (C14). The primary
-- key is what two running calls of one id meet at.
INSERT INTO claim_call (queue_id, claim_id, claim_time, worker_id, held)
SELECT :queue_id, UNHEX(j.claim_id), {{now}}, j.worker_id, ''
FROM JSON_TABLE(:list, '$[*]' COLUMNS (claim_id CHAR(32) PATH '$[0]', worker_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[1]')) AS j
