-- Says of messages, which the transaction has inserted, that their idempotency keys name others
-- of other content (E3); they are dead in the same transaction. Leans on the primary key.
UPDATE m
SET reason_code = N'IDEMPOTENCY_KEY_REUSED', last_error = N'the idempotency key belongs to another message, of other content'
FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j
INNER LOOP JOIN queuebox.message AS m WITH (ROWLOCK) ON m.id = j.id
OPTION (FORCE ORDER);
SELECT @@ROWCOUNT AS changed;
