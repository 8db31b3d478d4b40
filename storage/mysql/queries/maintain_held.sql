-- Which of the claim calls have a message whose token is still theirs, leased or settling. Leans on
-- the primary key; takes no lock.
SELECT DISTINCT j.n
FROM JSON_TABLE(:list, '$[*]' COLUMNS (n INT PATH '$[0]', id BIGINT PATH '$[1]', token CHAR(32) PATH '$[2]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.state IN (1, 3) AND m.token = UNHEX(j.token)
