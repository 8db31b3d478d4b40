-- Of the messages whose lease looks over, those whose lease is over: a renewal or a mark that has
-- not committed has the row, and is passed over here. Their locks last to the end of the
-- transaction, and nobody renews a lease that is over. Leans on the primary key.
SELECT STRAIGHT_JOIN m.id
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
WHERE m.state = 1 AND m.lease_end <= {{now}}
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
