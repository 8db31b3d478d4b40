-- What claim_lease has stored, with the payloads, under the locks of the transaction. Leans on
-- the primary key.
SELECT {{message_columns}}, m.payload
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m ON m.id = j.id
