-- Which of the listed claims are not plainly held: their row is gone or another's, or their
-- holder was asked to stop. No row for the others. Leans on the primary key.
SELECT j.ord, m.cancel_requested
FROM JSON_TABLE(:list, '$[*]' COLUMNS (ord INT PATH '$[0]', queue_id INT PATH '$[1]', id BIGINT PATH '$[2]',
    token CHAR(32) PATH '$[3]')) AS j
LEFT JOIN message AS m FORCE INDEX (PRIMARY)
    ON m.id = j.id AND m.queue_id = j.queue_id AND m.state = 1 AND m.token = UNHEX(j.token)
WHERE m.id IS NULL OR m.cancel_requested = 1
