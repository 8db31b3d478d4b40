-- Which messages are meant: what ListMessagesParams says of a row a, in the parameters $2 to $10.
-- ListMessages, Redrive and Purge share this text, so that they mean the same.
(cardinality($2::smallint[]) = 0 OR a.state = ANY ($2::smallint[]))
AND ($3::text = '' OR a.ordering_key = $3::text COLLATE "C")
AND (cardinality($4::smallint[]) = 0 OR a.dead_reason = ANY ($4::smallint[]))
AND (cardinality($5::text[]) = 0 OR a.reason_code = ANY ($5::text[]))
AND ($6::text = '' OR strpos(a.last_error, $6::text) > 0)
AND ($7::text = '' OR a.worker_id = $7::text)
AND ($8::timestamptz IS NULL OR a.create_time >= $8::timestamptz)
AND ($9::timestamptz IS NULL OR a.create_time < $9::timestamptz)
AND (cardinality($10::bigint[]) = 0 OR a.position = ANY ($10::bigint[]))
