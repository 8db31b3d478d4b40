-- Appends settlements to the history (S5).
INSERT INTO settlement (id, token, queue_id, settle_time, available_time, action, outcome, dead_reason)
SELECT j.id, UNHEX(j.token), j.queue_id, :now, j.available, j.action, j.outcome, j.reason
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]', token CHAR(32) PATH '$[1]', queue_id INT PATH '$[2]',
    available DATETIME(6) PATH '$[3]', action INT PATH '$[4]', outcome INT PATH '$[5]', reason INT PATH '$[6]')) AS j
