-- Says of messages, which the transaction has inserted, that their idempotency keys name others
-- of other content (E3); they are dead in the same transaction. Leans on the primary key.
UPDATE JSON_TABLE(:list, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS j
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.id = j.id
SET m.reason_code = 'IDEMPOTENCY_KEY_REUSED', m.last_error = 'the idempotency key belongs to another message, of other content'
