-- Of the messages whose lease looks over, those whose lease is over: a renewal or a mark that has
-- not committed has the row, and is passed over here. Their locks last to the end of the
-- transaction, and nobody renews a lease that is over. Leans on message_id.
SELECT m.id
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (UPDLOCK, READPAST, ROWLOCK) ON m.id = j.id
WHERE m.state = 1 AND m.lease_end <= {{now}};
