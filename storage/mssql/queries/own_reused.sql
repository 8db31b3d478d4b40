-- Says of messages, which the transaction has inserted, that their idempotency keys name others
-- of other content (E3); they are dead in the same transaction. Leans on the primary key.
UPDATE queuebox.message WITH (ROWLOCK)
SET reason_code = N'IDEMPOTENCY_KEY_REUSED', last_error = N'the idempotency key belongs to another message, of other content'
WHERE id IN (SELECT j.id FROM OPENJSON(@list) WITH (id bigint '$[0]') AS j);
SELECT @@ROWCOUNT AS changed;
