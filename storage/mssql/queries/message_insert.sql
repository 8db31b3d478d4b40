-- Inserts messages and gives their ids. The ids rise in the order of i, which ORDER BY promises
-- for an IDENTITY; the rows of OUTPUT come in any order. The payloads lie one behind the other
-- in @payloads, so that they travel as they are and a statement has one text.
-- Writes the primary key and the one of message_ready, message_delayed and message_parked that
-- the place says, and for a message with an ordering key message_head and message_key.
INSERT INTO queuebox.message (queue_id, place, urgency, ready_time, create_time, expire_time, key_id, max_attempts,
    payload_bytes, wire_bytes, content_type, idempotency_key, attributes, payload)
OUTPUT inserted.id
SELECT j.queue_id, j.place, j.urgency, j.ready_time, j.create_time, j.expire_time, j.key_id, j.max_attempts,
    j.payload_bytes, j.wire_bytes, j.content_type, CAST(j.idempotency_key AS varbinary(255)), j.attributes,
    SUBSTRING(@payloads, j.payload_start, j.payload_bytes)
FROM OPENJSON(@list) WITH (i int '$[0]', queue_id int '$[1]', place tinyint '$[2]', urgency bigint '$[3]',
    ready_time datetime2(6) '$[4]', create_time datetime2(6) '$[5]', expire_time datetime2(6) '$[6]',
    key_id bigint '$[7]', max_attempts int '$[8]', payload_start bigint '$[9]', payload_bytes int '$[10]',
    wire_bytes bigint '$[11]', content_type nvarchar(255) '$[12]', idempotency_key varbinary(max) '$[13]',
    attributes nvarchar(max) '$[14]') AS j
ORDER BY j.i;
