-- What claim_lease has stored, with the payloads. Leans on the primary key.
SELECT {{message_columns}}, m.payload
FROM JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
